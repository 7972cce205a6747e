"""What a run does with each of its sources."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from spark_integration.summary import FailedMessage
from spark_integration.tracking import Keys, Table


class AnySource(Protocol):
    """Where rows come from."""

    @property
    def frame(self) -> DataFrame: ...

    @property
    def spout(self) -> str: ...

    def with_keys(self) -> DataFrame:
        """The frame and its tracking column."""


class Part(Protocol):
    """A source in a run, from the first message id that is read to the last final event."""

    @property
    def source(self) -> AnySource: ...

    def __len__(self) -> int:
        """Its messages, or deliveries."""

    def take(self) -> None:
        """Takes the right to work on it."""

    def is_mine(self) -> bool:
        """Whether this run has that right, and still has it."""

    def hold(self) -> None:
        """Keeps the right. Raises SpoutTaken if another run has it."""

    def read(self) -> None:
        """Reads what there is, and checks it. Nothing is pending yet."""

    def init(self) -> None:
        """Makes it pending: all of it or, with an error, nothing."""

    def table(self) -> Table:
        """What a Python worker needs to find the roots of a row."""

    def keep(self) -> None:
        """Restarts the clock of what is pending."""

    def counts(self) -> tuple[int, int]:
        """How many have completed and failed so far."""

    def complete(self, token: str) -> None:
        """Acks everything. What has failed stays failed."""

    def exchange(self, keys: Keys, deltas: Keys, token: str) -> None:
        """Acks everything in exchange for the edges of rows that another application is to ack, XORed for each key."""

    def abort(self, error: str) -> None:
        """Fails what is pending."""

    def settle(self) -> tuple[int, list[FailedMessage]]:
        """How many are complete, and what has failed."""

    def keys_of(self, roots: list[int]) -> tuple[int, ...]:
        """The keys of the messages behind some roots."""

    def close(self) -> None:
        """Gives the right back."""
