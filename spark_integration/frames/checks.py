"""Checks of what users pass in: a mistake in a frame, column, schema or function is reported before anything starts."""

from __future__ import annotations

import inspect
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from spark_integration.errors import BadFrame
from spark_integration.frames.repeatable import is_repeatable, stored
from spark_integration.runs.tracking import COLUMN

MOST_CALLS = 1000
"""Calls of a sink that may run at once in one worker."""

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def check_frame(frame: DataFrame, *, stable_source: bool | None) -> DataFrame:
    """The frame to track: as it is, or stored if it could have other rows when it is read again."""
    if frame.isStreaming:
        raise BadFrame(
            "A streaming frame has no end, so it cannot be tracked as a whole: call track_stream(), or track() on each "
            "micro-batch, inside of foreachBatch()."
        )
    check_columns(frame)
    if stable_source is None:
        stable_source = is_repeatable(frame)
    return frame if stable_source else stored(frame)


def check_columns(frame: DataFrame) -> None:
    if COLUMN.lower() in (name.lower() for name in frame.columns):
        raise BadFrame(f"The frame has a column {COLUMN!r}, the name of the tracking column: rename yours.")
    if strange := [name for name in frame.columns if "." in name or "`" in name]:
        raise BadFrame(
            f"Python steps cannot take columns with '.' or '`' in their names, such as {strange}: rename them."
        )


def check_arrival(frame: DataFrame, arrival: str | None) -> None:
    """Raises BadFrame if a column cannot say when messages have arrived."""
    if arrival is None:
        return
    if arrival not in frame.columns:
        raise BadFrame(f"There is no column {arrival!r} for the time of arrival; there are {', '.join(frame.columns)}.")
    kind = frame.schema[arrival].dataType
    if not isinstance(kind, (TimestampType, LongType)):
        raise BadFrame(
            f"The column {arrival!r} for the time of arrival is {kind.simpleString()}: it has to be a timestamp, or a "
            "bigint of milliseconds since 1970."
        )


def check_measured(arrival: str, columns: list[str], *, hands_over: bool) -> None:
    """Raises BadFrame if tasks cannot measure the time from the arrival of a message. columns: that they get."""
    if hands_over:
        raise BadFrame("arrival= does not go with sink(anchors=): another application completes the messages.")
    if arrival not in columns:
        raise BadFrame(
            f"arrival= is for jobs without a shuffle that end in sink(), whose rows have the column {arrival!r} when "
            "they come to the first Python step."
        )


def check_kind(
    spout: str | None, message_id: str | None, name: str | None, anchors: str | None, *, are_own_options: bool
) -> None:
    """Rows are messages of this application, or come from another with their anchors."""
    if (message_id is None) == (anchors is None):
        raise BadFrame(
            "track() takes either message_id=, the column that names each row as a message of this application, or "
            "anchors=, the column in which another application handed its rows over."
        )
    if anchors is None and (not spout or name is not None):
        raise BadFrame(
            "track(message_id=) needs spout=, the name under which the store keeps these messages, not name=."
        )
    if anchors is not None and (not name or spout is not None or are_own_options):
        raise BadFrame(
            "track(anchors=) needs name=, what this job is called, and takes no spout=, retries=, replays= or resume=: "
            "these belong to the application whose messages they are."
        )


def check_leaving(columns: list[str], anchors: str, *, is_fused: bool, replays: int, is_changed: bool = False) -> None:
    """is_changed: the rows of a stream have other columns than came in, and could not be tried again."""
    if is_changed:
        raise BadFrame(
            "sink(anchors=) of a stream keeps rows as they came in, to try them again: choose and make columns before "
            "track_stream(), or in Python steps."
        )
    if not is_fused:
        raise BadFrame(
            "sink(anchors=) is for jobs without a shuffle, with per='row' or 'batch': hand rows of others over with "
            "to_df()."
        )
    if replays:
        raise BadFrame(
            "replays are for messages that are complete when the job is: leave replays at 0 with sink(anchors=), and "
            "bring failed messages again when Outcomes says so."
        )
    if not_reserved(anchors).lower() in (name.lower() for name in columns):
        raise BadFrame(f"The frame has a column {anchors!r} already: choose another name for the anchors.")


def check_message_id(frame: DataFrame, column: str) -> None:
    if column not in frame.columns:
        raise BadFrame(f"There is no column {column!r} for the message id: the frame has {frame.columns}.")
    kind = frame.schema[column].dataType
    if not isinstance(kind, (StringType, BinaryType, *_INTEGERS)):
        raise BadFrame(
            f"Column {column!r} is {kind.simpleString()}, and message ids are strings, bytes or integers: cast it "
            "to string."
        )


def check_resume(resume: object) -> None:
    if resume not in (True, False, "keys"):
        raise BadFrame(f"resume is True, False or 'keys', not {resume!r}.")


def check_anchors(frame: DataFrame, column: str) -> None:
    if column not in frame.columns or not isinstance(frame.schema[column].dataType, BinaryType):
        raise BadFrame(
            f"There is no column {column!r} of bytes for the anchors: the frame is {frame.schema.simpleString()}."
        )


def check_group_columns(schema: StructType, columns: tuple[str, ...]) -> None:
    for name in columns:
        if not isinstance(name, str) or name not in schema.names:
            raise BadFrame(f"group_by() takes names of columns, and {name!r} is none of {schema.names}.")
        kind = schema[name].dataType
        if isinstance(kind, StringType) and kind.simpleString() != "string":
            raise BadFrame(
                f"group_by() cannot group by {name!r}, whose collation takes different texts for equal: normalise it."
            )


def check_sink(function: Any, per: str, concurrency: int, sink_timeout_s: float) -> None:
    if per not in ("row", "batch", "partition"):
        raise BadFrame(f"per must be 'row', 'batch' or 'partition', not {per!r}.")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= MOST_CALLS:
        raise BadFrame(f"concurrency must be a whole number of calls from 1 to {MOST_CALLS}, not {concurrency!r}.")
    if concurrency > 1 and per == "partition":
        raise BadFrame("concurrency is for per='row' and per='batch': a partition is one call.")
    if isinstance(sink_timeout_s, bool) or not isinstance(sink_timeout_s, (int, float)) or not sink_timeout_s > 0:
        raise BadFrame(f"sink_timeout_s must be a number of seconds above 0, not {sink_timeout_s!r}.")
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise BadFrame("A sink is a plain function: a generator or async function would do nothing.")


def fields_of(schema: str | StructType) -> StructType:
    """The fields of a step's schema."""
    try:
        fields = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    except Exception as error:
        raise BadFrame(f"{schema!r} is not a schema, such as 'word string, count long': {error}") from error
    if not isinstance(fields, StructType):
        raise BadFrame(
            f"The schema of a step is a text such as 'word string, count long', or a StructType, not {schema!r}."
        )
    for name in fields.names:
        not_reserved(name)
    return fields


def not_reserved(column: str) -> str:
    if column.lower() == COLUMN.lower():
        raise BadFrame(f"{COLUMN!r} is the name of the tracking column: choose another.")
    return column


def name_of(function: Any) -> str:
    """The name of a step that was given none."""
    return str(getattr(function, "__name__", type(function).__name__))
