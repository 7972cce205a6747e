"""redis-acker for Spark: every row of a PySpark job is a message that is known to be complete or failed."""

from spark_integration.errors import BadFrame, JobFailed, TooManyFailures
from spark_integration.frame import GroupedFrame, TrackedFrame, resume, track
from spark_integration.steps import WrongOutput
from spark_integration.summary import FailedMessage, Summary
from spark_integration.topology import SparkRunner
from spark_integration.workers import StoreOutOfReach

__all__ = [
    "BadFrame",
    "FailedMessage",
    "GroupedFrame",
    "JobFailed",
    "SparkRunner",
    "StoreOutOfReach",
    "Summary",
    "TooManyFailures",
    "TrackedFrame",
    "WrongOutput",
    "resume",
    "track",
]
