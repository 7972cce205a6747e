"""An acker on simulated time. The clocks of its servers are simulated too: scripts and TIME tell the test's time."""

from __future__ import annotations

import hashlib
import re
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
from redis_acker.testing.fake import fake_redis, lua
from redis_acker.testing.time import SimulatedTime

_OF_TIME = re.compile(r"'(?:TIME|PTTL|PX)'")
"""What a script says that asks the server for its time, or has a key expire by it."""

_INSTEAD = {"TIME", "PTTL"}
"""Commands of which the same is true. A script is sent in their place."""


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
        time.followers.append(self._end_leases)

    def close(self) -> None:
        if self._end_leases in self.clock.followers:
            self.clock.followers.remove(self._end_leases)
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

    def _end_leases(self) -> None:
        """Ends leases whose time is over: they are keys that expire. lua/simulated.lua notes when."""
        run, keys = self.shards.transport.run, [self.shards.keys[0].lease(spout) for spout in self.shards.spouts()]
        untils = run(Command(0, ("GET", f"{key}:until")) for key in keys)
        over = [key for key, until in zip(keys, untils, strict=True) if until and int(until) <= self.clock.time_ms()]
        run(Command(0, ("DEL", key, f"{key}:until")) for key in over)


class SimulatedTransport(Transport):
    """Sends scripts that are told the time instead of asking the server."""

    def __init__(self, servers: Servers, *, retry_for_s: float, time: SimulatedTime) -> None:
        super().__init__(servers, retry_for_s=retry_for_s)
        self._time = time

    def run(self, commands: Iterable[Command], *, retry_for_s: float | None = None) -> list[Any]:
        return super().run(map(self._simulated, commands), retry_for_s=retry_for_s)

    def _simulated(self, command: Command) -> Command:
        now_ms = self._time.time_ms()
        if command.args[0] in _INSTEAD:
            source = f"{lua('simulated')} return redis.call('{command.args[0]}', unpack(KEYS))"
            return Command(command.shard, ("EVAL", source, len(command.args) - 1, *command.args[1:], now_ms))
        if command.script is None or not _OF_TIME.search(command.script.source):
            return command
        told, first = simulated_script(command.script), 3 + int(command.args[2])
        args = ("EVALSHA", told.sha, *command.args[2:first], now_ms, *command.args[first:])
        return Command(command.shard, args, told)


@cache
def simulated_script(script: Script) -> Script:
    """The same script, with a time that it is told by its first argument."""
    source = lua("simulated") + script.source
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
