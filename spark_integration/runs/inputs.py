"""What a run does with each of its inputs."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from redis_acker import Acker
from redis_acker.retries.book import RetryPolicy
from spark_integration.runs.summary import FailedMessage
from spark_integration.runs.tracking import Keys, KeyTable


class Input(Protocol):
    """A frame that is tracked: Messages or Deliveries. Any number of runs may work on it."""

    @property
    def frame(self) -> DataFrame: ...

    @property
    def name(self) -> str:
        """The spout, or the job."""

    def with_keys(self) -> DataFrame:
        """The frame with its tracking column."""

    def in_run(self, run: str, acker: Acker, retries: RetryPolicy) -> RunInput: ...


class Watched(Protocol):
    """What the watch of a run looks at."""

    @property
    def name(self) -> str: ...

    def renew_lease(self) -> None:
        """Raises SpoutTaken if another run has taken it over."""

    def extend(self) -> None:
        """Restarts the clock of what is pending."""

    def counts(self) -> tuple[int, int]:
        """How many have completed and failed so far."""


class RunInput(Watched, Protocol):
    """An input in one run, from the first message id that is read to the last final event."""

    def __len__(self) -> int:
        """How many messages, or deliveries, it has."""

    def take_lease(self) -> None:
        """Takes the right to work on it."""

    def has_lease(self) -> bool:
        """Whether this run has that right, and still has it."""

    def read(self) -> None:
        """Reads what there is, and checks it. Nothing is pending yet."""

    def init(self) -> None:
        """Makes it pending: all of it or, with an error, nothing."""

    def with_keys(self) -> DataFrame:
        """The frame with its tracking column, with the keys that read() settled on."""

    def key_table(self) -> KeyTable:
        """What a Python worker needs to find the roots of a row."""

    def complete(self, token: str) -> None:
        """Acks everything. What has failed stays failed."""

    def hand_over(self, keys: Keys, edges: Keys, token: str) -> None:
        """Acks everything in exchange for the edges of rows that another application has to ack, XORed for each key."""

    def fail(self, error: str) -> None:
        """Fails what is pending."""

    def final_events(self) -> tuple[int, list[FailedMessage]]:
        """How many are complete, and what has failed. Called once, when nothing is pending any more."""

    def close(self) -> None:
        """Cleans up, and gives the lease back."""
