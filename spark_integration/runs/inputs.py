"""What a run does with each of its inputs."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from spark_integration.runs.summary import Summary
from spark_integration.runs.tracking import Keys, KeyTable


class Watched(Protocol):
    """What the watch of a run looks at."""

    @property
    def name(self) -> str:
        """The spout, or the job."""

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
        """Takes the right to work on it, and ends what a run that died has left."""

    def has_lease(self) -> bool:
        """Whether this run has that right, and still has it."""

    def make_pending(self) -> None:
        """Reads what there is, checks it, and makes it pending."""

    def with_keys(self) -> DataFrame:
        """The frame with its tracking column."""

    def fail(self, error: str) -> None:
        """Fails what is pending."""

    def close(self) -> None:
        """Cleans up, and gives the lease back."""


class CompletedInput(RunInput, Protocol):
    """An input whose messages, or deliveries, are done when the job is."""

    def complete(self, token: str) -> None:
        """Acks everything. What has failed stays failed."""

    def summary(self, seconds: float) -> Summary:
        """What has become of it. Called when nothing is pending any more."""


class HandedOverInput(RunInput, Protocol):
    """An input whose rows another application continues with."""

    def key_table(self) -> KeyTable:
        """What a Python worker needs to find the roots of a row."""

    def hand_over(self, keys: Keys, edges: Keys, token: str) -> None:
        """Acks everything in exchange for the edges of rows that another application has to ack, XORed for each key."""
