"""Streams of the user's whose caller can be stopped at any call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis_acker.spouts.user_streams import UserStreams
from redis_acker.store.transport import Command


class Stopped(Exception):
    """Stands for the end of the process."""


class StoppingStreams(UserStreams):
    """Stops at one of its calls: before it is sent, or when it was executed."""

    def __init__(self, url: str | Sequence[str], names: Sequence[str]) -> None:
        super().__init__(url, names)
        self._left: int | None = None
        self._before = False
        self._then: Callable[[], None] = self._stop

    def stop_at(self, call: int | None, *, before: bool = False, then: Callable[[], None] | None = None) -> None:
        """then: what happens at that call instead."""
        self._left, self._before, self._then = call, before, then or self._stop

    def run(self, commands: Iterable[Command]) -> list[Any]:
        is_due, self._left = self._left == 0, None if self._left is None else self._left - 1
        if is_due and self._before:
            self._then()
        replies = super().run(commands)
        if is_due and not self._before:
            self._then()
        return replies

    @property
    def has_stopped(self) -> bool:
        return self._left is not None and self._left < 0

    @staticmethod
    def _stop() -> None:
        raise Stopped
