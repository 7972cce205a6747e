"""Rows that another application handed over, each with its anchors: they are acked when this job has written them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker import Acker, Token
from redis_acker.ids import U64Array
from spark_integration.errors import BadFrame
from spark_integration.summary import FailedMessage
from spark_integration.tracking import COLUMN, FailedRows, Keys, Places, deltas_of, find_places

_BYTES_EACH = 16


@dataclass(frozen=True)
class Deliveries:
    """A frame whose rows carry anchors. The key of a row is a hash of them: edges name one delivery and no other."""

    frame: DataFrame
    column: str
    spout: str
    """What the job is called in its summary; the messages are those of other spouts."""

    def with_keys(self) -> DataFrame:
        return self.frame.withColumn(COLUMN, F.xxhash64(F.col(f"`{self.column}`"))).drop(self.column)

    def read(self) -> tuple[Keys, list[bytes]]:
        """Keys in ascending order, and the anchors of each. A row that was delivered twice is one delivery."""
        anchors = F.col(f"`{self.column}`")
        table = self.frame.select(F.xxhash64(anchors).alias("key"), anchors.alias("anchors")).toArrow()
        if without := table.column("anchors").null_count:
            raise BadFrame(
                f"{without:,} of {table.num_rows:,} rows have no anchors in column {self.column!r}: leave them "
                "out with where(), or work on them with a frame of their own that is not tracked."
            )
        keys, places = np.unique(table.column("key").to_numpy(), return_index=True)
        return keys, table.column("anchors").combine_chunks().take(places).to_pylist()


@dataclass(frozen=True)
class DeliveryTable:
    """Finds the roots of a delivery by its key."""

    keys: Keys
    ends: NDArray[np.int64]
    roots: U64Array
    notes = "deliveries"

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        places, found = find_places(self.keys, keys)
        starts = np.concatenate((np.zeros(1, dtype=np.int64), self.ends))
        parts = [np.arange(starts[place], starts[place + 1]) for place in places.tolist()]
        which = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return self.roots[which], np.repeat(found, [len(part) for part in parts])


class OpenDeliveries:
    """Deliveries in a run. They are pending already, and their spouts are other programs'."""

    def __init__(self, source: Deliveries, acker: Acker, run: str) -> None:
        self.source = source
        self._acker = acker
        self._failed = FailedRows(acker, f"{run}:{DeliveryTable.notes}")
        self._ends: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._keys: Keys = np.zeros(0, dtype=np.int64)
        self.roots: U64Array = np.zeros(0, dtype=np.uint64)
        self._edges: U64Array = np.zeros(0, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._keys)

    def take(self) -> None:
        """Nothing is to be taken: the rows are nobody's but this job's."""

    def is_mine(self) -> bool:
        return True

    def hold(self) -> None:
        """Nothing is held."""

    def read(self) -> None:
        self._keys, packed = self.source.read()
        if wrong := [one for one in packed if not one or len(one) % _BYTES_EACH]:
            raise BadFrame(
                f"Anchors are a multiple of {_BYTES_EACH} bytes, and {wrong[0]!r} in column {self.source.column!r} is "
                "not: take the bytes that to_df() or Anchors.to_bytes() gave."
            )
        self._ends = np.cumsum([len(one) // _BYTES_EACH for one in packed], dtype=np.int64)
        pairs = np.frombuffer(b"".join(packed), dtype=">u8").astype(np.uint64).reshape(-1, 2)
        self.roots, self._edges = pairs[:, 0].copy(), pairs[:, 1].copy()

    def init(self) -> None:
        """They are pending already."""

    def counts(self) -> tuple[int, int]:
        return 0, self._failed.count()

    def table(self) -> DeliveryTable:
        return DeliveryTable(self._keys, self._ends, self.roots)

    def keep(self) -> None:
        self._acker.extend(self.roots)

    def complete(self, token: str) -> None:
        """Acks every delivery; a root that has failed stays failed. The token is made of the deliveries themselves: a
        job that died after this and is run again on the same rows changes nothing."""
        self._ack(self._edges)

    def exchange(self, keys: Keys, deltas: Keys, token: str) -> None:
        """Acks every delivery in exchange for the edges of the rows it became."""
        own = deltas_of(self._keys, keys, deltas)
        self._ack(self._edges ^ np.repeat(own, np.diff(self._ends, prepend=0)))

    def _ack(self, ack_vals: U64Array) -> None:
        digest = hashlib.blake2b(self._keys.tobytes(), digest_size=16).hexdigest()
        self._acker.ack(self.roots, ack_vals, token=Token.of(f"{self.source.spout} {digest}"))

    def abort(self, error: str) -> None:
        if len(self.roots):
            self._acker.fail(self.roots, component=self.source.spout, error=error)

    def settle(self) -> tuple[int, list[FailedMessage]]:
        """The deliveries whose rows failed here. Their messages are replayed by the spouts they come from."""
        table, failed = self.table(), []
        for (step, cause), keys in self._failed.read().items():
            for key in keys:
                roots, _ = table.find(np.array([key], dtype=np.int64))
                root = int(roots[0])
                failed.append(FailedMessage(root, self.source.spout, root, 1, "failed", step, cause.error, False))
        return len(self) - len(failed), failed

    def keys_of(self, roots: list[int]) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        self._failed.forget()
