"""Rows that another application handed over, each with its anchors: they are acked once this job has written them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker import Acker, Token
from redis_acker.store.ids import U64Array
from redis_acker.store.packed import ANCHOR_BYTES, split_anchors, unpack_anchor_arrays
from spark_integration.errors import BadFrame
from spark_integration.runs.failing import NotedRows
from spark_integration.runs.summary import FailedMessage, Summary
from spark_integration.runs.tracking import (
    COLUMN,
    MOST_TRACED,
    Keys,
    Places,
    TracedDelivery,
    check_size,
    edges_for,
    find_places,
)


@dataclass(frozen=True)
class DeliveryTable:
    """The roots of deliveries: keys in ascending order, each with the end of its roots among all of them."""

    keys: Keys
    ends: Places
    roots: U64Array
    notes = "deliveries"

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        places, found = find_places(self.keys, keys)
        starts = np.concatenate((np.zeros(1, dtype=np.int64), self.ends))
        parts = [np.arange(starts[place], starts[place + 1]) for place in places.tolist()]
        which = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return self.roots[which], np.repeat(found, [len(part) for part in parts])


@dataclass(frozen=True)
class Deliveries:
    """A frame whose rows carry anchors. The key of a row is a hash of them, since edges name one delivery only."""

    frame: DataFrame
    anchors: str
    """The column that holds them."""
    job: str
    """What this job is called; its messages are those of other programs' spouts."""

    @property
    def name(self) -> str:
        return self.job

    def with_keys(self) -> DataFrame:
        return self.frame.withColumn(COLUMN, F.xxhash64(F.col(f"`{self.anchors}`"))).drop(self.anchors)

    def read(self) -> tuple[Keys, list[bytes]]:
        """Keys in ascending order, and the anchors of each. A row that was delivered twice is one delivery."""
        anchors = F.col(f"`{self.anchors}`")
        table = self.frame.select(F.xxhash64(anchors).alias("key"), anchors.alias("anchors")).toArrow()
        if without := table.column("anchors").null_count:
            raise BadFrame(
                f"{without:,} of {table.num_rows:,} rows have no anchors in column {self.anchors!r}: leave them "
                "out with where(), or work on them in a frame of their own that is not tracked."
            )
        keys, places = np.unique(table.column("key").to_numpy(), return_index=True)
        return keys, table.column("anchors").combine_chunks().take(places).to_pylist()


class DeliveriesInRun:
    """Deliveries in one run. They are pending already, and their spouts belong to other programs: there is no lease to
    take."""

    def __init__(self, deliveries: Deliveries, acker: Acker, run: str) -> None:
        self._deliveries, self._acker = deliveries, acker
        self._noted = NotedRows(acker, f"{run}:{DeliveryTable.notes}")
        self._keys: Keys = np.zeros(0, dtype=np.int64)
        self._ends: Places = np.zeros(0, dtype=np.int64)
        self._roots: U64Array = np.zeros(0, dtype=np.uint64)
        self._edges: U64Array = np.zeros(0, dtype=np.uint64)
        self._traces: dict[int, bytes] = {}

    @property
    def name(self) -> str:
        return self._deliveries.job

    def __len__(self) -> int:
        return len(self._keys)

    def take_lease(self) -> None:
        pass

    def renew_lease(self) -> None:
        pass

    def has_lease(self) -> bool:
        return True

    def make_pending(self) -> None:
        """Reads them: they are pending already."""
        self._noted.begin()
        self._keys, found = self._deliveries.read()
        check_size(self._deliveries.frame.sparkSession, len(self))
        packed, traces = zip(*map(split_anchors, found), strict=True) if found else ((), ())
        if wrong := [one for one in packed if not one or len(one) % ANCHOR_BYTES]:
            raise BadFrame(
                f"Anchors are a multiple of {ANCHOR_BYTES} bytes, and {wrong[0]!r} in column "
                f"{self._deliveries.anchors!r} is not: use the bytes that to_df() or Anchors.to_bytes() gave."
            )
        self._ends = np.cumsum([len(one) // ANCHOR_BYTES for one in packed], dtype=np.int64)
        self._roots, self._edges = unpack_anchor_arrays(b"".join(packed))
        self._traces = {place: trace for place, trace in enumerate(traces) if trace}

    def traces(self) -> list[TracedDelivery]:
        starts = np.concatenate((np.zeros(1, dtype=np.int64), self._ends))
        return [
            TracedDelivery(int(self._keys[place]), self._roots[starts[place] : starts[place + 1]].tolist(), trace)
            for place, trace in islice(self._traces.items(), MOST_TRACED)
        ]

    def with_keys(self) -> DataFrame:
        return self._deliveries.with_keys()

    def key_table(self) -> DeliveryTable:
        return DeliveryTable(self._keys, self._ends, self._roots)

    def extend(self) -> None:
        self._acker.extend(self._roots)

    def counts(self) -> tuple[int, int]:
        return 0, len(self._noted)

    def complete(self, token: str) -> None:
        """Acks every delivery; a root that has failed stays failed. The token is made of the deliveries themselves, so
        a job that died after this and runs again on the same rows changes nothing."""
        self._ack(self._edges)

    def hand_over(self, keys: Keys, edges: Keys, token: str) -> None:
        handed_over = edges_for(self._keys, keys, edges)
        self._ack(self._edges ^ np.repeat(handed_over, np.diff(self._ends, prepend=0)))

    def _ack(self, ack_vals: U64Array) -> None:
        digest = hashlib.blake2b(self._keys.tobytes(), digest_size=16).hexdigest()
        self._acker.ack(self._roots, ack_vals, token=Token.of(f"{self.name} {digest}"))

    def fail(self, error: str) -> None:
        if len(self._roots):
            self._acker.fail(self._roots, component=self.name, error=error)

    def summary(self, seconds: float) -> Summary:
        """With the deliveries whose rows failed here. Their messages are replayed by the spouts they come from."""
        table, failed = self.key_table(), []
        for cause, keys in self._noted.read().items():
            for key in keys.tolist():
                roots, _ = table.find(np.array([key], dtype=np.int64))
                root, why = int(roots[0]), ("failed", cause.component, cause.error)
                failed.append(FailedMessage(None, self.name, root, 1, *why, dead=False))
        return Summary((self.name,), len(self), len(self) - len(failed), 0, tuple(failed), seconds)

    def close(self) -> None:
        self._noted.delete()
