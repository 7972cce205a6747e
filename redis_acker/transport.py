"""Sends commands to the servers of a namespace: pipelined, and again after a lost reply.

Everything sent here may be delivered twice. That is safe because every script recognises what it has done before.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import redis
from redis import exceptions as redis_errors

from redis_acker.connect import Servers
from redis_acker.errors import (
    AccessDenied,
    AckerError,
    MemoryFull,
    ScriptFailed,
    ServerUnavailable,
    StoreLost,
    WrongKeyType,
)
from redis_acker.scripts import Script, script

Argument: TypeAlias = "bytes | str | int"

IN_FLIGHT = 8
"""Commands sent to a server before the first reply is read, so that neither side waits for the other."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0

# The server did nothing, or it is not known what it did: send again.
_AGAIN = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ReadOnlyError,
    redis_errors.MasterDownError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
    redis_errors.MovedError,
    redis_errors.AskError,
    redis_errors.RedisClusterException,
    OSError,
)
_AGAIN_CODES = ("BUSY ", "NOREPLICAS ")
_IN_SCRIPT_READONLY = ": -READONLY "  # as 6.2 reports it
_DENIED_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")
_DENIED = (redis_errors.AuthenticationError, redis_errors.AuthorizationError, redis_errors.NoPermissionError)


@dataclass(frozen=True)
class Command:
    """One Redis command for one shard."""

    shard: int
    args: tuple[Argument, ...]
    script: Script | None = None

    @classmethod
    def call(cls, name: str, shard: int, keys: Sequence[str], args: Iterable[Argument]) -> Command:
        """A call of a script of lua/."""
        loaded = script(name)
        return cls(shard, ("EVALSHA", loaded.sha, len(keys), *keys, *args), loaded)


class Transport:
    """Runs commands and gives their replies in the same order."""

    def __init__(self, servers: Servers, *, retry_for_s: float) -> None:
        self._servers = servers
        self._retry_for_s = retry_for_s
        self.troubles = 0
        """How often commands had to be sent again, so that a reply may be lost."""

    def run(self, commands: Iterable[Command], *, retry_for_s: float | None = None) -> list[Any]:
        """Replies to all commands. Raises one AckerError when one was refused, or not answered in time."""
        work = _Work(commands)
        patience_s = self._retry_for_s if retry_for_s is None else retry_for_s
        deadline, pause_s = time.monotonic() + patience_s, _FIRST_PAUSE_S
        while True:
            trouble = self._attempt(work)
            if work.is_done():
                return work.replies
            if trouble is not None:
                self.troubles += 1
                if time.monotonic() > deadline:
                    raise ServerUnavailable(
                        f"{self._servers.describe(trouble.shard)} did not answer within {patience_s:g} s ({trouble}): "
                        "check that it runs and can be reached."
                    ) from trouble.error
                time.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                self._servers.refresh()

    def run_one(self, command: Command, *, retry_for_s: float | None = None) -> Any:
        return self.run([command], retry_for_s=retry_for_s)[0]

    def _attempt(self, work: _Work) -> _Trouble | None:
        """Sends what has no reply yet. Returns why it must be sent again, if the server is to blame."""
        lines: dict[int, _Line] = {}
        trouble: _Trouble | None = None
        shard = 0
        try:
            for i, command in work.unanswered():
                shard = command.shard
                client = self._servers.client(command.shard)
                line = lines.get(id(client)) or lines.setdefault(id(client), _Line(client))
                line.send(i, command)
                if len(line.sent) >= IN_FLIGHT:
                    line.receive(work)
            for line in lines.values():
                while line.sent:
                    shard = work.commands[line.sent[0]].shard
                    line.receive(work)
        except _DENIED as error:
            raise _translate(error) from error
        except _AGAIN as error:
            trouble = _Trouble(shard, error)
        finally:
            for line in lines.values():
                line.close()
        return self._judge(work) or trouble

    def _judge(self, work: _Work) -> _Trouble | None:
        """Looks at error replies: loads missing scripts, raises what is final, forgets what is to be sent again."""
        trouble: _Trouble | None = None
        missing: dict[tuple[int, Script], Command] = {}
        for i, error in work.take_errors():
            command = work.commands[i]
            if isinstance(error, redis_errors.NoScriptError) and command.script:
                missing[id(self._servers.client(command.shard)), command.script] = command
            elif isinstance(error, _AGAIN) or str(error).startswith(_AGAIN_CODES) or _IN_SCRIPT_READONLY in str(error):
                trouble = _Trouble(command.shard, error)
            else:
                raise _translate(error) from error
        for (_, missing_script), command in missing.items():
            try:
                self._servers.client(command.shard).execute_command("SCRIPT LOAD", missing_script.source)
            except _DENIED as error:
                raise _translate(error) from error
            except _AGAIN as error:
                trouble = _Trouble(command.shard, error)
        return trouble


@dataclass(frozen=True)
class _Trouble:
    """Why commands must be sent again."""

    shard: int
    error: Exception

    def __str__(self) -> str:
        # redis-py appends the whole configuration of every Sentinel client it asked.
        return str(self.error).partition(" : <")[0]


class _Work:
    """Commands and what has come back for them. Takes the commands one by one, as they are sent the first time."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self._rest = iter(commands)
        self.commands: list[Command] = []
        self.replies: list[Any] = []

    def unanswered(self) -> Iterator[tuple[int, Command]]:
        for i, command in enumerate(self.commands):
            if self.replies[i] is _UNANSWERED:
                yield i, command
        for command in self._rest:
            self.commands.append(command)
            self.replies.append(_UNANSWERED)
            yield len(self.commands) - 1, command

    def take_errors(self) -> Iterator[tuple[int, Exception]]:
        for i, reply in enumerate(self.replies):
            if isinstance(reply, Exception):
                self.replies[i] = _UNANSWERED
                yield i, reply

    def is_done(self) -> bool:
        return next(self.unanswered(), None) is None


_UNANSWERED = object()


class _Line:
    """A connection with commands in flight."""

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection = self._pool.get_connection()
        self.sent: deque[int] = deque()

    def send(self, i: int, command: Command) -> None:
        self._connection.send_command(*command.args)
        self.sent.append(i)

    def receive(self, work: _Work) -> None:
        try:
            reply = self._connection.read_response()
        except redis_errors.ResponseError as error:
            reply = error
        if isinstance(reply, dict):  # a client that speaks RESP3: as the flat list of RESP2
            reply = [part for pair in reply.items() for part in pair]
        work.replies[self.sent.popleft()] = reply

    def close(self) -> None:
        if self.sent:  # replies are still to come, and must not reach another caller
            self._connection.disconnect()
        self._pool.release(self._connection)


def _translate(error: Exception) -> AckerError:
    text = str(error)
    if isinstance(error, _DENIED) or any(words in text for words in _DENIED_IN_SCRIPT):
        return AccessDenied(f"The server refused access ({text}): check user, password and ACL rights.")
    if isinstance(error, redis_errors.OutOfMemoryError) or "OOM command not allowed" in text:
        return MemoryFull(
            "The server's memory is full (maxmemory) and it refused new roots. Wait for pending roots to finish, or "
            "raise maxmemory, and repeat the call: what it did store is recognised."
        )
    if text.startswith("LOST"):
        return StoreLost(f"The server has lost its data: {text.removeprefix('LOST ')}. Allocate new roots.")
    if "WRONGTYPE" in text:
        return WrongKeyType(
            "A key of this namespace holds another type of value, so some other program wrote to it; nothing was "
            f"changed. Remove that key or use another namespace ({text})."
        )
    return ScriptFailed(f"The server answered with an error: {text}")
