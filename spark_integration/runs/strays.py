"""Rows of a stream that cannot be tracked: they are set aside for the driver, and the rest of their batch goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redis_acker.store.hashes import StoredHash
from redis_acker.store.message_ids import MAX_ID_BYTES
from spark_integration.runs.kept_rows import bounded, pack_rows
from spark_integration.runs.portions import field_in, keys_of, wide
from spark_integration.runs.tracking import COLUMN, Keys, Places, find_places

NO_ID = "it has no message id"
LONG_ID = f"its message id has more than {MAX_ID_BYTES} bytes"
REPEATED = "another row of the same micro-batch has the same message id"
WAITS = "a message with the same id waits for another attempt"


class Strays:
    """Leaves out rows without a message id, with one that is too long, or with one that an earlier row of the same
    partition has, or a message that waits for another attempt. The driver makes dead letters of them."""

    def __init__(self, notes: StoredHash, message_id: str, waiting: Keys) -> None:
        self._notes, self._message_id, self._waiting = notes, message_id, waiting
        self._seen: list[Keys] = []
        """All keys so far, in ascending arrays that get shorter: few to look in, and each key is sorted a few times."""
        self.left_out = 0

    def rest_of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = field_in(batch, "id")
            ids = batch.column(self._message_id) if found is None else found
            for why, places in self._found(ids, keys_of(batch)):
                self._set_aside(batch.take(pa.array(places)), why)
                kept = np.delete(np.arange(batch.num_rows), places)
                batch, ids = batch.take(pa.array(kept)), ids.take(pa.array(kept))
            yield batch

    def _found(self, ids: pa.Array, keys: np.ndarray) -> Iterator[tuple[str, Places]]:
        """Each time the places among what is left by then."""
        if ids.null_count:
            is_null = ids.is_null().to_numpy(zero_copy_only=False)
            yield NO_ID, np.flatnonzero(is_null)
            ids, keys = ids.drop_null(), keys[~is_null]
        if not pa.types.is_integer(ids.type) and len(ids):
            is_long = pc.greater(pc.binary_length(wide(ids)), MAX_ID_BYTES).to_numpy(zero_copy_only=False)
            if is_long.any():
                yield LONG_ID, np.flatnonzero(is_long)
                keys = keys[~is_long]
        _, waiting = find_places(self._waiting, keys)
        if len(waiting):
            yield WAITS, waiting
            keys = np.delete(keys, waiting)
        ascending = np.sort(keys)  # takes a twentieth of the time of np.unique()
        if (ascending[1:] == ascending[:-1]).any() or any(len(find_places(one, ascending)[1]) for one in self._seen):
            ascending, first = np.unique(keys, return_index=True)
            for one in self._seen:
                first = np.delete(first, find_places(one, keys[first])[1])
            yield REPEATED, np.setdiff1d(np.arange(len(keys)), first)
            ascending = np.sort(keys[first])
        self._add(ascending)

    def _add(self, keys: Keys) -> None:
        while self._seen and len(self._seen[-1]) <= len(keys):
            keys = np.sort(np.concatenate([self._seen.pop(), keys]), kind="stable")
        self._seen.append(keys)

    def _set_aside(self, rows: pa.RecordBatch, why: str) -> None:
        """Under names made of what they hold, so that another attempt sets the same ones aside."""
        self.left_out += rows.num_rows
        texts = pack_rows(rows.drop_columns([COLUMN]))
        self._notes.put({name_of(text): json.dumps([why, json.loads(bounded(text))]) for text in texts})


def strays_of(rows: str) -> str:
    """Under which name rows are set aside, where those of failed messages are kept under another."""
    return f"{rows} strays"


def name_of(text: str) -> str:
    """What the dead letter of a row is called that has no message id of its own."""
    return f"stray {blake2b(text.encode(), digest_size=8).hexdigest()}"
