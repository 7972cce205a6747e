"""Rows of a tracked query that cannot be messages: they become dead letters, and the stream goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker import Acker
from redis_acker.errors import Unreadable
from redis_acker.store.hashes import json_of
from redis_acker.store.message_ids import MAX_ID_BYTES, MessageId
from redis_acker.store.quarantine import Quarantine
from spark_integration.runs.kept_rows import bounded, pack_rows
from spark_integration.runs.strays import LONG_ID, NO_ID, WAITS, name_of, strays_of
from spark_integration.streams.spout import StreamSpout


class StrayRows:
    """The strays of one query."""

    def __init__(self, acker: Acker, spout: StreamSpout, id_in: Callable[[list[Any]], MessageId | None]) -> None:
        """id_in: finds the message id in a row that was kept."""
        self._acker, self._spout, self._id_in = acker, spout, id_in

    def bury(self) -> None:
        """Makes dead letters of the rows that workers have set aside."""
        strays = self._acker.shards.failed_rows(strays_of(self._spout.rows_name))
        for name, why, payload in Quarantine(self._acker.shards).readable(strays, _stray_of):
            known = isinstance(payload, list)
            own_id = self._id_in(payload) if known else None
            if why == WAITS and own_id is not None and self._spout.rows_before.get(own_id) == payload:
                continue  # the message itself, brought again: it failed just before its worker died, or was sent twice
            self._spout.give_up(name, why if known else f"{why}; {payload}", payload if known else None)
        strays.delete()
        self._spout.rows_before = {}

    def rest_of(self, frame: DataFrame, message_id: str) -> DataFrame:
        """For jobs in which no worker sees whole rows first: the rows that can be tracked. The others are made dead
        letters."""
        column = F.col(f"`{message_id}`")
        is_text = frame.schema[message_id].dataType.typeName() in ("string", "binary")
        fits = column.isNotNull() & (F.octet_length(column) <= MAX_ID_BYTES if is_text else F.lit(True))
        strays = frame.where(~F.coalesce(fits, F.lit(False))).toArrow()
        for text, one in zip(pack_rows(strays), strays.column(message_id).to_pylist(), strict=True):
            payload, why = json.loads(bounded(text)), NO_ID if one is None else LONG_ID
            self._spout.give_up(name_of(text), why, payload if type(payload) is list else None)
        return frame.where(fits)


def _stray_of(name: bytes, text: bytes) -> tuple[str, str, Any]:
    """The name of a row that cannot be tracked, why, and the row or why it was not kept."""
    match json_of(text):
        case [str(why), list() | str() as payload]:
            return name.decode(errors="replace"), why, payload
    raise Unreadable("it is not a row that was set aside")
