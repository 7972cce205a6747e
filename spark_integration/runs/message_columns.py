"""Message ids as Spark's columns hold them, for the store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from redis_acker.store.message_ids import MessageIds, TextIds


def wide(ids: Any) -> Any:
    """Ids in the widest type of their kind: those of an earlier run may be longer, and all of them may exceed 2 GB."""
    if pa.types.is_integer(ids.type):
        return ids.cast(pa.int64())
    return ids.cast(pa.large_string() if is_text(ids.type) else pa.large_binary())


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def message_ids_of(ids: Any) -> MessageIds:
    """An Arrow array of ids as the store takes them."""
    ids = wide(ids)
    if pa.types.is_integer(ids.type):
        integers: MessageIds = ids.to_numpy()
        return integers
    _, ends, data = ids.buffers()
    offsets = np.frombuffer(ends, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    return TextIds(offsets, memoryview(data) if data else memoryview(b""), text=is_text(ids.type))
