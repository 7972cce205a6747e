"""Deliveries in a job with a shuffle: the driver reads their anchors, and acks them when the sink has written."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker import Acker
from redis_acker.store.ids import U64Array
from spark_integration.runs.deliveries import Deliveries, Received
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

_NONE = Received(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64), {})


@dataclass(frozen=True)
class DeliveryTable:
    """The roots of deliveries, by their keys in ascending order."""

    keys: Keys
    received: Received
    notes = "deliveries"

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        places, found = find_places(self.keys, keys)
        counts = (self.received.ends - self.received.starts)[places]
        return self.received.roots[self.received.anchors_of(places)], np.repeat(found, counts)


class GatheredDeliveries:
    """Deliveries in one run. They are pending already, and their spouts belong to other programs: there is no lease to
    take. What was done before, and what comes twice, is left out of the frame."""

    def __init__(self, deliveries: Deliveries, acker: Acker, run: str) -> None:
        self._deliveries, self._acker = deliveries, acker
        self._noted = NotedRows(acker, f"{run}:{DeliveryTable.notes}")
        self._keys: Keys = np.zeros(0, dtype=np.int64)
        self._received = self._half_acked = _NONE
        self._rows = self._twice = self._before = 0

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
        """Reads them, and asks which are to be worked on: they are pending already."""
        self._noted.begin()
        deliveries = self._deliveries
        column = F.col(f"`{deliveries.anchors}`")
        table = deliveries.frame.select(deliveries.key().alias("key"), column.alias("anchors")).toArrow()
        keys, places = np.unique(table.column("key").to_numpy(), return_index=True)
        check_size(deliveries.frame.sparkSession, len(keys))
        received = Received.of(table.column("anchors"), deliveries.anchors).take(places)
        open_rows, half_acked = received.to_do(self._acker.edge_states(received.roots, received.edges))
        self._keys, self._received, self._half_acked = (
            keys[open_rows],
            received.take(open_rows),
            received.take(half_acked),
        )
        self._rows, self._twice = table.num_rows, table.num_rows - len(keys)
        self._before = table.num_rows - len(open_rows)

    def traces(self) -> list[TracedDelivery]:
        return [
            TracedDelivery(int(self._keys[place]), self._received.roots_of(place), trace)
            for place, trace in islice(self._received.traces.items(), MOST_TRACED)
        ]

    def with_keys(self) -> DataFrame:
        """Only what is to be worked on, each delivery once."""
        frame = self._deliveries.with_keys()
        if not self._before:
            return frame
        if self._twice:
            frame = frame.dropDuplicates([COLUMN])
        wanted = frame.sparkSession.createDataFrame(pa.table({COLUMN: pa.array(self._keys, type=pa.int64())}))
        return frame.join(wanted, COLUMN, "left_semi").select(*frame.columns)  # in their order

    def key_table(self) -> DeliveryTable:
        return DeliveryTable(self._keys, self._received)

    def extend(self) -> None:
        self._acker.extend(self._received.roots)

    def counts(self) -> tuple[int, int]:
        return 0, len(self._noted)

    def complete(self, token: str) -> None:
        """Acks every delivery by its edges; a root that has failed stays failed."""
        for one in (self._received, self._half_acked):
            self._acker.ack_edges(one.roots, one.edges)

    def hand_over(self, keys: Keys, edges: Keys, token: str) -> None:
        handed_over = edges_for(self._keys, keys, edges)[self._received.rows_of_anchors()]
        self._acker.ack_edges(self._received.roots, self._received.edges, self._received.edges ^ handed_over)

    def fail(self, error: str) -> None:
        """Leaves them pending: that the job has failed is no attempt at them, and they may be delivered again."""

    def summary(self, seconds: float) -> Summary:
        """With the deliveries whose rows failed here. Their messages are replayed by the spouts they come from."""
        table, failed = self.key_table(), []
        for cause, keys in self._noted.read().items():
            for key in keys.tolist():
                roots, _ = table.find(np.array([key], dtype=np.int64))
                why = ("failed", cause.component, cause.error)
                failed.append(FailedMessage(None, self.name, int(roots[0]), 1, *why, dead=False))
        done = self._rows - len(failed)
        return Summary((self.name,), self._rows, done, 0, tuple(failed), seconds, self._before)

    def close(self) -> None:
        self._noted.delete()
