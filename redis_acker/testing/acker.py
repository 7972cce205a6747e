"""An acker on simulated time. The clocks of its servers are simulated too: scripts and TIME tell the test's time."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

from redis_acker.errors import BadInput, UnknownNamespace
from redis_acker.store.acker import Acker
from redis_acker.store.connect import Servers, Target
from redis_acker.store.keys import key_patterns
from redis_acker.store.scripts import Script
from redis_acker.store.transport import Command, Transport
from redis_acker.testing.fake import fake_redis
from redis_acker.testing.time import SimulatedTime

_ASKS = "redis.call('TIME')"
"""How scripts ask the server for its time: lua/lib/time.lua."""

_TELLS = "simulated_time"
_HEAD = f"local {_TELLS} = {{ table.remove(ARGV, 1), table.remove(ARGV, 1) }}\n"
"""Put in front of a script: takes seconds and microseconds from its first two arguments."""

_TOLD = "return ARGV"
"""A script in place of TIME."""


class SimulatedAcker(Acker):
    """An Acker by whose servers the time is what the test says. Rotators, drivers and runners that work with it wait by
    that time."""

    clock: SimulatedTime

    def __init__(
        self, url: Target | Sequence[Target] | None = None, *, time: SimulatedTime, namespace: str, **settings: Any
    ) -> None:
        """time: several ackers may share it, on one namespace or on several. The rest is as in Acker()."""
        self.clock = time
        super().__init__(url, namespace=namespace, **settings)
        time.followers.append(self._age_leases)

    def close(self) -> None:
        if self._age_leases in self.clock.followers:
            self.clock.followers.remove(self._age_leases)
        super().close()

    def delete_keys(self) -> None:
        """Deletes the namespace."""
        clients = {id(client): client for client in map(self.servers.client, range(len(self.shards)))}
        [pattern] = key_patterns(self.namespace, "all")
        for client in clients.values():
            for key in client.scan_iter(match=pattern, count=1000):
                client.delete(key)

    def __getstate__(self) -> NoReturn:
        raise BadInput("Simulated time passes in one process, so its Acker cannot be pickled: use LocalRunner.")

    def _new_transport(self) -> Transport:
        return SimulatedTransport(self.servers, retry_for_s=self._retry_for_s, time=self.clock)

    def _age_leases(self, ms: int) -> None:
        """Lets leases end sooner by the time that has passed: they are keys that expire by the server's own clock."""
        keys = [self.shards.keys[0].lease(spout) for spout in self.shards.spouts()]
        left = self.shards.transport.run(Command(0, ("PTTL", key)) for key in keys)
        self.shards.transport.run(
            Command(0, ("PEXPIRE", key, left_ms - ms)) for key, left_ms in zip(keys, left, strict=True) if left_ms > 0
        )


class SimulatedTransport(Transport):
    """Sends scripts that are told the time instead of asking the server."""

    def __init__(self, servers: Servers, *, retry_for_s: float, time: SimulatedTime) -> None:
        super().__init__(servers, retry_for_s=retry_for_s)
        self._time = time

    def run(self, commands: Iterable[Command], *, retry_for_s: float | None = None) -> list[Any]:
        return super().run(map(self._simulated, commands), retry_for_s=retry_for_s)

    def _simulated(self, command: Command) -> Command:
        seconds, ms = divmod(self._time.time_ms(), 1000)
        now = (seconds, ms * 1000)
        if command.args == ("TIME",):
            return Command(command.shard, ("EVAL", _TOLD, 0, *now))
        if command.script is None or _ASKS not in command.script.source:
            return command
        told, first = simulated_script(command.script), 3 + int(command.args[2])
        args = ("EVALSHA", told.sha, *command.args[2:first], *now, *command.args[first:])
        return Command(command.shard, args, told)


@cache
def simulated_script(script: Script) -> Script:
    """The same script, with a time that it is told."""
    source = _HEAD + script.source.replace(_ASKS, _TELLS)
    return Script(script.name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@contextmanager
def simulated_acker(
    url: Target | Sequence[Target] | None = None, *, namespace: str | None = None, **settings: Any
) -> Iterator[tuple[SimulatedAcker, SimulatedTime]]:
    """An acker on simulated time, in a namespace of its own that is deleted afterwards.

    Without a URL or client it is on a fake server in this process. A namespace that exists is refused, since those who
    use it go by another time. settings: timeout_ms, buckets, shards and the others of Acker().
    """
    target = fake_redis() if url is None else url
    name = namespace or f"simulated-{secrets.token_hex(6)}"
    _refuse_existing(target, name)
    time = SimulatedTime()
    acker = SimulatedAcker(target, time=time, namespace=name, **settings)
    try:
        yield acker, time
    finally:
        acker.delete_keys()
        acker.close()


def _refuse_existing(target: Target | Sequence[Target], namespace: str) -> None:
    if target == "embedded":
        return
    try:
        Acker(target, namespace=namespace, create=False).close()
    except UnknownNamespace:
        return
    raise BadInput(
        f"Namespace {namespace!r} exists, and those who use it go by another time: choose another, or leave it out."
    )
