"""A hand on the line between an acker and its servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from redis_acker import Acker
from redis_acker.errors import ServerUnavailable
from redis_acker.store.transport import Command, Transport

MANY_COMMANDS = 5000
"""More than any step needs: something runs in a circle."""


class Line(Transport):
    """Delivers commands, notes them, and on request does something between any two of them."""

    def __init__(self, acker: Acker, watch: Callable[[Command, Any], None]) -> None:
        super().__init__(acker.servers, retry_for_s=10.0)
        self._watch = watch
        self._action: Callable[[], object] | None = None
        self._left = 0
        self.twice = False
        """Deliver every script call twice, as after a lost reply. The second reply is the one that arrives."""
        self.delivered: list[Command] = []

    def act_after(self, commands: int, action: Callable[[], object]) -> None:
        """Calls the action once, after so many commands more, before the next."""
        self._left, self._action = commands, action

    def cut_after(self, commands: int) -> None:
        """Delivers so many commands more, and raises at the next."""
        self.act_after(commands, _cut)

    def calm(self) -> None:
        self._action, self.twice, self.delivered = None, False, []

    def run(self, commands: Iterable[Command], *, retry_for_s: float | None = None) -> list[Any]:
        if self._action or self.twice:
            return [self._deliver(command) for command in commands]
        assert len(self.delivered) < MANY_COMMANDS, f"still not done after {MANY_COMMANDS} commands"
        sent = list(commands)
        replies = super().run(sent, retry_for_s=retry_for_s)
        self.delivered += sent
        for command, reply in zip(sent, replies, strict=True):
            self._watch(command, reply)
        return replies

    def _deliver(self, command: Command) -> Any:
        if self._action and self._left == 0:
            action, self._action = self._action, None
            action()
        self._left -= 1
        if self.twice and command.script:
            super().run([command])
        reply = super().run([command])[0]
        self.delivered.append(command)
        self._watch(command, reply)
        return reply


def _cut() -> NoReturn:
    raise ServerUnavailable("The line was cut.")
