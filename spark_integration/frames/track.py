"""track(): where tracked frames begin."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame

from redis_acker import Acker
from redis_acker.retries.policy import RetryPolicy
from spark_integration.frames import checks
from spark_integration.frames.frame import TrackedFrame
from spark_integration.frames.job import Frames, InputNode
from spark_integration.frames.repeatable import keeps_order
from spark_integration.runs.deliveries import Deliveries
from spark_integration.runs.life import RunOptions
from spark_integration.runs.messages import MessageFrame

_DEFAULT_RETRIES = RetryPolicy()


def track(
    frame: DataFrame,
    *,
    acker: Acker,
    spout: str | None = None,
    message_id: str | None = None,
    name: str | None = None,
    anchors: str | None = None,
    retries: RetryPolicy | None = None,
    replays: int = 0,
    max_failures: int | None = None,
    progress: bool | None = None,
    stable_source: bool | None = None,
    resume: bool | Literal["keys"] = True,
) -> TrackedFrame:
    """Tracks the rows of a frame: with message_id as messages of its own, with anchors as rows of others' messages.

    message_id: the column that names a row; never null. Each row is a message of the spout: it is complete when
    everything that steps make of it has reached a sink. The store keeps the id, and a failure brings it back.
    anchors: the column of bytes in which another application handed its rows over. A sink acks them, each once, however
    often it is delivered; what fails is replayed by the spout its message comes from. name: what this job is called.

    retries: after how many failed attempts, in this run and others, a message is given up.
    replays: how often a sink tries failed messages again within one call; what it writes to must take appends.
    max_failures: more failed messages than this cancel the job.
    progress: a live line on stderr; by default only if that is a terminal.
    stable_source: whether the frame has the same rows when it is read again. By default its plan is asked, and a frame
    for which the plan does not say so (JDBC, Kafka, random numbers) is first stored in the executors.
    resume: continue where an earlier run of this spout on the same input died. False: start from the beginning. 'keys':
    continue also on another number of cores; the store keeps 8 bytes for each message until the run ends.
    """
    checks.check_resume(resume)
    are_own_options = bool(retries or replays or resume is not True)
    checks.check_kind(spout, message_id, name, anchors, are_own_options=are_own_options)
    frame = checks.check_frame(frame, stable_source=stable_source)
    options = RunOptions(acker, retries or _DEFAULT_RETRIES, replays, max_failures, progress, resume)
    source: MessageFrame | Deliveries
    if anchors is not None:
        checks.check_anchors(frame, anchors)
        source = Deliveries(frame, anchors, str(name))
    else:
        checks.check_message_id(frame, str(message_id))
        source = MessageFrame(frame, str(spout), str(message_id), keeps_order(frame))
    return TrackedFrame(InputNode.of(source), options, Frames())
