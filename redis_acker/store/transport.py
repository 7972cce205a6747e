"""Sends commands to the servers of a namespace: pipelined, and once more after a lost reply.

Everything sent here may arrive twice. That is safe because every script recognises what it has done before.
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

from redis_acker.errors import (
    AccessDenied,
    AckerError,
    EarlyLimit,
    MemoryFull,
    ScriptFailed,
    ServerUnavailable,
    StoreLost,
    TooLate,
    WrongKeyType,
)
from redis_acker.store.connect import Servers
from redis_acker.store.scripts import Loaded, Loader, Script, script, scripts_missing
from redis_acker.store.urls import hide_password

Argument: TypeAlias = "bytes | str | int"

IN_FLIGHT = 8
"""Commands sent to a server before the first reply is read, so that neither side waits for the other."""

TROUBLE = (redis.RedisError, redis_errors.RedisClusterException, OSError)
"""What redis-py raises when a server, or the way to it, fails."""

DENIED = (redis_errors.AuthenticationError, redis_errors.AuthorizationError, redis_errors.NoPermissionError)

_DENIED_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0

# The server did nothing, or nobody knows what it did: send again.
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
_IN_SCRIPT_READONLY = ": -READONLY "  # as Redis 6.2 reports it


@dataclass(frozen=True)
class Command:
    """One Redis command for one shard."""

    shard: int
    args: tuple[Argument, ...]
    script: Script | None = None

    @classmethod
    def call(cls, name: str, shard: int, keys: Sequence[str], args: Iterable[Argument]) -> Command:
        """A call of one of the scripts in lua/."""
        loaded = script(name)
        return cls(shard, ("EVALSHA", loaded.sha, len(keys), *keys, *args), loaded)


class Transport:
    """Runs commands and returns their replies in the same order."""

    def __init__(self, servers: Servers, *, retry_for_s: float) -> None:
        self._servers = servers
        self._retry_for_s = retry_for_s
        self.troubles = 0
        """How often commands were sent again, so that replies may have been lost."""
        self._loader, self._has_loaded = Loader(servers), False

    def run(self, commands: Iterable[Command], *, retry_for_s: float | None = None) -> list[Any]:
        """The replies to all commands. Raises an AckerError if one is refused, or not answered in time."""
        work = _Work(commands)
        patience_s = self._retry_for_s if retry_for_s is None else retry_for_s
        deadline, pause_s = time.monotonic() + patience_s, _FIRST_PAUSE_S
        while True:
            trouble = self._attempt(work)
            if work.is_done():
                if self._has_loaded:  # those who may not load need the others too
                    self._has_loaded = False
                    self.load_scripts()
                return work.replies
            if trouble is not None:
                self.troubles += 1
                if time.monotonic() > deadline:
                    raise self._gave_up(trouble, patience_s) from trouble.error
                time.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                self._servers.refresh()

    def limit_retries(self, seconds: float) -> None:
        """Keeps trying no longer than this from now on."""
        self._retry_for_s = min(self._retry_for_s, seconds)

    def run_one(self, command: Command, *, retry_for_s: float | None = None) -> Any:
        return self.run([command], retry_for_s=retry_for_s)[0]

    def load_scripts(self) -> list[Loaded]:
        """Loads all scripts on each server that does not know them, if this user may; empty if not."""
        return self._loader.load_everywhere()

    def _attempt(self, work: _Work) -> _Trouble | None:
        """Sends what has no reply yet. Returns why it must be sent again, if it must."""
        lines, shard = dict[int, _Line](), 0
        trouble: _Trouble | None = None
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
        except DENIED as error:
            raise translate(error) from error
        except _AGAIN as error:
            trouble = _Trouble(shard, error)
        finally:
            for line in lines.values():
                line.close()
        return self._judge(work) or trouble

    def _judge(self, work: _Work) -> _Trouble | None:
        """Looks at error replies: loads missing scripts, raises what is final, leaves the rest to be sent again."""
        trouble: _Trouble | None = None
        missing: dict[tuple[int, Script], Command] = {}
        for i, error in work.take_errors():
            command = work.commands[i]
            if isinstance(error, redis_errors.NoScriptError) and command.script:
                missing[id(self._servers.client(command.shard)), command.script] = command
            elif isinstance(error, _AGAIN) or str(error).startswith(_AGAIN_CODES) or _IN_SCRIPT_READONLY in str(error):
                trouble = _Trouble(command.shard, error)
            else:
                raise translate(error) from error
        for (_, missing_script), command in missing.items():
            trouble = self._load(missing_script, command.shard) or trouble
        return trouble

    def _load(self, missing: Script, shard: int) -> _Trouble | None:
        """Loads a script; if this user may not, others are waited for who may."""
        try:
            if not self._loader.load(self._servers.client(shard), [missing]):
                return _Trouble(shard, redis_errors.NoScriptError(missing.name))
        except DENIED as error:
            raise translate(error) from error
        except _AGAIN as error:
            return _Trouble(shard, error)
        self._has_loaded = True
        return None

    def _gave_up(self, trouble: _Trouble, patience_s: float) -> ServerUnavailable:
        server = self._servers.describe(trouble.shard)
        if isinstance(trouble.error, redis_errors.NoScriptError):
            return scripts_missing(server, str(trouble.error), patience_s)
        return unavailable(server, trouble.error, within_s=patience_s)


@dataclass(frozen=True)
class _Trouble:
    """Why commands must be sent again."""

    shard: int
    error: Exception


class _Work:
    """Commands and their replies so far. Takes each command from its iterable when it is first sent."""

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
        self._connection.send_packed_command([_packed(command.args)])
        self.sent.append(i)

    def receive(self, work: _Work) -> None:
        try:
            reply = self._connection.read_response()
        except redis_errors.ResponseError as error:
            reply = error
        if isinstance(reply, dict):  # from a client that speaks RESP3: turned into the flat list of RESP2
            reply = [part for pair in reply.items() for part in pair]
        work.replies[self.sent.popleft()] = reply

    def close(self) -> None:
        if self.sent:  # their replies must not reach the next caller
            self._connection.disconnect()
        self._pool.release(self._connection)


def _packed(args: Sequence[Argument]) -> bytes:
    """A command as it goes to the server. redis-py's own packer takes three times as long."""
    parts = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    return b"*%d\r\n%b" % (len(args), b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]))


# -- what can go wrong, in our errors --------------------------------------------------------------------------------


def why(error: Exception) -> str:
    """An error of redis-py in a few words, without the connection details that it may append."""
    return " ".join(str(error).partition(" : <")[0].split()) or type(error).__name__


def is_denied(error: Exception) -> bool:
    return isinstance(error, DENIED) or any(words in str(error) for words in _DENIED_IN_SCRIPT)


def denied(server: str, error: Exception) -> AccessDenied:
    return AccessDenied(f"{server} refused access ({why(error)}): check user, password and ACL rights.")


def unavailable(server: str, error: Exception, *, within_s: float | None = None) -> ServerUnavailable:
    in_time = "" if within_s is None else f" within {within_s:g} s"
    return ServerUnavailable(
        f"{server} did not answer{in_time} ({hide_password(why(error))}): check that it runs and can be reached."
    )


def translate(error: Exception) -> AckerError:
    """Our error for an error reply."""
    text = str(error)
    if is_denied(error):
        return denied("The server", error)
    if isinstance(error, redis_errors.OutOfMemoryError) or "OOM command not allowed" in text:
        return MemoryFull(
            "The server's memory is full (maxmemory), so it refused new roots. Wait for pending roots to finish, or "
            "raise maxmemory, and repeat the call: what is already stored is recognised."
        )
    if text.startswith("LOST"):
        return StoreLost(f"The server has lost its data: {text.removeprefix('LOST ')}. Allocate new roots.")
    if text.startswith("TOOLATE"):
        return TooLate(f"The server refused an init: {text.removeprefix('TOOLATE ')}.")
    if text.startswith("EARLY"):
        return EarlyLimit(
            f"The shard keeps no more than {text.removeprefix('EARLY ')} bytes of acks and fails for roots without an "
            "init, so it refused these; nothing was changed. Repeat the call when the inits have come, and look for a "
            "sender of roots that nobody initialises."
        )
    if "WRONGTYPE" in text:
        return WrongKeyType(
            "A key of this namespace holds another type of value, so another program wrote to it; nothing was "
            f"changed. Remove that key or use another namespace ({text})."
        )
    return ScriptFailed(f"The server answered with an error: {text}")
