"""redis-acker for Spark: every row of a PySpark job is a message that is known to be complete or failed.

errors < workers < runs < frames, with topologies beside runs and frames: lower ones never import higher ones.
"""

from spark_integration.errors import BadFrame as BadFrame
from spark_integration.errors import JobFailed as JobFailed
from spark_integration.errors import OtherRows as OtherRows
from spark_integration.errors import OtherVersion as OtherVersion
from spark_integration.errors import SinkHangs as SinkHangs
from spark_integration.errors import StoreOutOfReach as StoreOutOfReach
from spark_integration.errors import TooManyFailures as TooManyFailures
from spark_integration.errors import WrongOutput as WrongOutput
from spark_integration.errors import WrongPython as WrongPython
from spark_integration.frames.frame import TrackedFrame as TrackedFrame
from spark_integration.frames.frame import resume as resume
from spark_integration.frames.frame import track as track
from spark_integration.frames.groups import GroupedFrame as GroupedFrame
from spark_integration.runs.summary import FailedMessage as FailedMessage
from spark_integration.runs.summary import Summary as Summary
from spark_integration.topologies.runner import SparkRunner as SparkRunner
