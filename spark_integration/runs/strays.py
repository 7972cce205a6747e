"""Rows of a stream that cannot be tracked: they are set aside for the driver, and the rest of their batch goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redis_acker.store.hashes import StoredHash
from redis_acker.store.message_ids import MAX_ID_BYTES, id_to_text
from spark_integration.runs.keeping import patiently
from spark_integration.runs.kept_rows import bounded, pack_rows
from spark_integration.runs.portions import field_in, keys_of, wide
from spark_integration.runs.tracking import COLUMN, Keys, Places, find_places

NO_ID = "it has no message id"
LONG_ID = f"its message id has more than {MAX_ID_BYTES} bytes"
REPEATED = "another row of the same micro-batch has the same message id"
WAITS = "a message with the same id waits for another attempt"
AWAY = "a message with the same id is not done: another application is at work on it"

_IDS_AT_ONCE = 1_000

Find = Callable[[pa.RecordBatch], Iterator[tuple[str, Places]]]
"""Finds rows to be left out, and why: each time their places among what is left by then."""


class Strays:
    """Leaves out rows without a message id, with one that is too long, or with one that an earlier row of the same
    partition has, or a message that is not done. The driver makes dead letters of them."""

    def __init__(self, notes: StoredHash, message_id: str, waiting: Keys, kept: StoredHash | None = None) -> None:
        """notes: where they are set aside. waiting: keys of messages that wait for another attempt. kept: the rows of
        messages that other applications are at work on, by message id."""
        self._notes, self._message_id, self._waiting, self._kept = notes, message_id, waiting, kept
        self._seen: list[Keys] = []
        """All keys so far, in ascending arrays that get shorter: few to look in, and each key is sorted a few times."""
        self.left_out = 0

    def with_own_ids(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that have an id, and the only ones that have it. To be asked for before rows are left out that are done:
        of two rows with one id the second is not."""
        return self._rest(batches, self._unnamed_or_repeated)

    def of_new_messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows whose id is not that of a message that waits, or of another row that another application works on."""
        return self._rest(batches, self._waiting_or_away)

    def _rest(self, batches: Iterator[pa.RecordBatch], find: Find) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for why, places in find(batch):
                self._set_aside(batch.take(pa.array(places)), why)
                batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), places)))
            yield batch

    def _ids_in(self, batch: pa.RecordBatch) -> pa.Array:
        found = field_in(batch, "id")
        return batch.column(self._message_id) if found is None else found

    def _unnamed_or_repeated(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Places]]:
        ids, keys = self._ids_in(batch), keys_of(batch)
        if ids.null_count:
            is_null = ids.is_null().to_numpy(zero_copy_only=False)
            yield NO_ID, np.flatnonzero(is_null)
            ids, keys = ids.drop_null(), keys[~is_null]
        if not pa.types.is_integer(ids.type) and len(ids):
            is_long = pc.greater(pc.binary_length(wide(ids)), MAX_ID_BYTES).to_numpy(zero_copy_only=False)
            if is_long.any():
                yield LONG_ID, np.flatnonzero(is_long)
                keys = keys[~is_long]
        ascending = np.sort(keys)  # takes a twentieth of the time of np.unique()
        if (ascending[1:] == ascending[:-1]).any() or any(len(find_places(one, ascending)[1]) for one in self._seen):
            ascending, first = np.unique(keys, return_index=True)
            for one in self._seen:
                first = np.delete(first, find_places(one, keys[first])[1])
            yield REPEATED, np.setdiff1d(np.arange(len(keys)), first)
            ascending = np.sort(keys[first])
        self._add(ascending)

    def _waiting_or_away(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Places]]:
        _, waiting = find_places(self._waiting, keys_of(batch))
        if len(waiting):
            yield WAITS, waiting
            batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), waiting)))
        if self._kept is not None and len(away := self._with_ids_of_others(self._kept, batch)):
            yield AWAY, away

    def _with_ids_of_others(self, rows: StoredHash, batch: pa.RecordBatch) -> Places:
        """The places of rows whose message is that of another row. A row that was set aside is so in every attempt,
        though the other may be done by then."""
        ids = list(map(id_to_text, self._ids_in(batch).to_pylist()))
        kept = [
            text for at in range(0, len(ids), _IDS_AT_ONCE) for text in self._get(rows, ids[at : at + _IDS_AT_ONCE])
        ]
        are_some_aside = patiently(lambda: len(self._notes)) > 0
        places = [place for place, text in enumerate(kept) if are_some_aside or text is not None]
        texts = pack_rows(batch.drop_columns([COLUMN]).take(pa.array(places, pa.int64())))
        aside = self._get(self._notes, list(map(name_of, texts)))
        found = [
            place
            for place, text, was_aside in zip(places, texts, aside, strict=True)
            if was_aside is not None or kept[place] not in (None, bounded(text).encode())
        ]
        return np.array(found, dtype=np.int64)

    def _get(self, stored: StoredHash, fields: list[str]) -> list[bytes | None]:
        return patiently(lambda: stored.get_all(fields)) if fields else []

    def _add(self, keys: Keys) -> None:
        while self._seen and len(self._seen[-1]) <= len(keys):
            keys = np.sort(np.concatenate([self._seen.pop(), keys]), kind="stable")
        self._seen.append(keys)

    def _set_aside(self, rows: pa.RecordBatch, why: str) -> None:
        """Under names made of what they hold, so that another attempt sets the same ones aside."""
        self.left_out += rows.num_rows
        texts = pack_rows(rows.drop_columns([COLUMN]))
        found = {name_of(text): json.dumps([why, json.loads(bounded(text))]) for text in texts}
        patiently(lambda: self._notes.put(found))


def strays_of(rows: str) -> str:
    """Under which name rows are set aside, where those of failed messages are kept under another."""
    return f"{rows} strays"


def name_of(text: str) -> str:
    """What the dead letter of a row is called that has no message id of its own."""
    return f"stray {blake2b(text.encode(), digest_size=8).hexdigest()}"
