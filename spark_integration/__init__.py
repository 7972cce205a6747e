"""redis-acker for Spark: every row of a PySpark job is a message that is known to be complete or failed.

errors < workers < runs < frames < streams, with topologies and sources beside runs and frames: lower ones never
import higher ones.
"""

from spark_integration.errors import BadCheckpoint as BadCheckpoint
from spark_integration.errors import BadFrame as BadFrame
from spark_integration.errors import EntriesMissing as EntriesMissing
from spark_integration.errors import JobFailed as JobFailed
from spark_integration.errors import OtherCheckpoint as OtherCheckpoint
from spark_integration.errors import OtherRows as OtherRows
from spark_integration.errors import OtherVersion as OtherVersion
from spark_integration.errors import SinkHangs as SinkHangs
from spark_integration.errors import StoreOutOfReach as StoreOutOfReach
from spark_integration.errors import TooManyFailures as TooManyFailures
from spark_integration.errors import WrongOutput as WrongOutput
from spark_integration.errors import WrongPython as WrongPython
from spark_integration.frames.frame import TrackedFrame as TrackedFrame
from spark_integration.frames.groups import GroupedFrame as GroupedFrame
from spark_integration.frames.track import track as track
from spark_integration.runs.outcomes import Outcomes as Outcomes
from spark_integration.runs.summary import FailedMessage as FailedMessage
from spark_integration.runs.summary import Summary as Summary
from spark_integration.sources.register import register as register
from spark_integration.sources.source import RedisStreamSource as RedisStreamSource
from spark_integration.sources.source import StreamStatus as StreamStatus
from spark_integration.streams.counters import StreamCounters as StreamCounters
from spark_integration.streams.running import TrackedQuery as TrackedQuery
from spark_integration.streams.stream import StreamJob as StreamJob
from spark_integration.streams.stream import TrackedStream as TrackedStream
from spark_integration.streams.stream import track_stream as track_stream
from spark_integration.topologies.runner import SparkRunner as SparkRunner
