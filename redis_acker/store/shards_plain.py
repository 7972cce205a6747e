"""The part of the door to the shards that needs no script: plain commands, a method for each question.

ShardKeys says what each key holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from redis_acker.errors import AccessDenied, ScriptFailed
from redis_acker.store.hashes import number_of
from redis_acker.store.keys import MAX_SPOUT, ShardKeys
from redis_acker.store.transport import Argument, Command, Transport

_LIFE = re.compile(r"^(?:run_id|master_replid2):(\w+)", re.MULTILINE)
"""Of one process; and of the primary that it followed when it became one itself."""


class SpoutFacts(NamedTuple):
    """What the store keeps about one spout."""

    retries: int
    dead: int
    holder: bytes | None
    """Who has its lease."""
    lease_ms: int
    """Time until that ends; negative without a lease."""
    run: bytes | None
    """The note of the Spark run in progress."""
    completions: int
    """Entries of its streams, over all shards."""
    failures: int


class PlainShards:
    """The shards of one namespace, as far as plain commands go. A spout goes by its number here."""

    transport: Transport
    keys: list[ShardKeys]

    # -- the namespace -------------------------------------------------------------------------------------------

    @property
    def troubles(self) -> int:
        """How often commands were sent again, so that replies may have been lost."""
        return self.transport.troubles

    def time_ms(self, shard: int) -> int:
        """The server's clock."""
        return ms_of(self.ask(shard, "TIME"))

    def times_ms(self) -> list[int]:
        """The clock of each shard's server."""
        return [ms_of(reply) for reply in self._each("TIME")]

    def server_lives(self) -> list[str]:
        """Names the life of each shard's server: it has another one after a restart, after it was a replica, or if
        another server has the shard. All alike where this user may not ask."""
        try:
            replies = zip(self._each("INFO", "server"), self._each("INFO", "replication"), strict=True)
        except (AccessDenied, ScriptFailed):
            return [""] * len(self.keys)
        return [" ".join(_LIFE.findall(f"{one.decode()}\n{other.decode()}")) for one, other in replies]

    def counted(self) -> list[dict[bytes, bytes]]:
        """The counters of each shard."""
        flats = self._each("HGETALL", lambda keys: keys.counters)
        return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in flats]

    def ticks(self) -> list[bytes | None]:
        """How often each shard was rotated."""
        return self._each("HGET", lambda keys: keys.meta, "tick")

    def histories_since_ms(self) -> list[int]:
        """Since when each shard has its history (see FinalEvents), by its server's clock; 0 if that is not known."""
        histories = self._each("HGET", lambda keys: keys.meta, "history")
        return [number_of((one or b"").partition(b"-")[0]) for one in histories]

    def turned_ms(self) -> list[int]:
        """When each shard was last rotated; 0: never."""
        return [number_of(one) for one in self._each("HGET", lambda keys: keys.meta, "turned_ms")]

    def bucket_sizes(self, bucket: int) -> list[int]:
        """Blocks in a bucket, for each shard."""
        return self._each("HLEN", lambda keys: keys.heads(bucket))

    def quarantine_sizes(self) -> list[int]:
        return self._each("HLEN", lambda keys: keys.quarantine)

    def unlink(self, shard: int, key: str) -> bool:
        """Deletes a key. False if it was not there."""
        return bool(self.ask(shard, "UNLINK", key))

    # -- spouts --------------------------------------------------------------------------------------------------

    def spouts(self) -> dict[int, str]:
        """The name of every spout, by its number; without what another program wrote there."""
        flat = self.ask(0, "HGETALL", self.keys[0].spouts)
        named = {number_of(number): name for name, number in zip(flat[::2], flat[1::2], strict=True)}
        return {number: name.decode(errors="replace") for number, name in named.items() if 0 < number <= MAX_SPOUT}

    def facts(self, spouts: Sequence[int]) -> list[SpoutFacts]:
        """What is kept about each spout, all in one go: there may be thousands."""
        first, count = self.keys[0], len(self.keys)
        replies = iter(self.transport.run(command for spout in spouts for command in self._facts_of(first, spout)))
        found = []
        for _ in spouts:
            retries, dead, holder, left_ms, run, *lengths = islice(replies, 5 + 2 * count)
            found.append(SpoutFacts(retries, dead, holder, left_ms, run, sum(lengths[:count]), sum(lengths[count:])))
        return found

    def _facts_of(self, first: ShardKeys, spout: int) -> Iterator[Command]:
        yield Command(0, ("HLEN", first.retries(spout)))
        yield Command(0, ("HLEN", first.dead(spout)))
        yield Command(0, ("GET", first.lease(spout)))
        yield Command(0, ("PTTL", first.lease(spout)))
        yield Command(0, ("GET", first.run(spout)))
        yield from (Command(shard, ("XLEN", keys.completions(spout))) for shard, keys in enumerate(self.keys))
        yield from (Command(shard, ("XLEN", keys.failures(spout))) for shard, keys in enumerate(self.keys))

    def spout_states_said(self) -> list[tuple[bytes, bytes]]:
        """All that is said of spouts, in one command."""
        return self._pairs(self.keys[0].spout_states)

    def tracked_streams_said(self) -> list[tuple[bytes, bytes]]:
        """All that is known of the streams of spouts, in one command."""
        return self._pairs(self.keys[0].tracked_streams)

    def _pairs(self, key: str) -> list[tuple[bytes, bytes]]:
        flat = self.ask(0, "HGETALL", key)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def began(self, spout: int) -> bytes:
        """What the last driver of a spout noted beside its lease when it began; empty if it has stopped."""
        return self.ask(0, "GET", self.keys[0].began(spout)) or b""

    def lease_holder(self, spout: int) -> str | None:
        found: bytes | None = self.ask(0, "GET", self.keys[0].lease(spout))
        return None if found is None else found.decode(errors="replace")

    def withdrawn_sizes(self, spout: int) -> list[int]:
        """Withdrawn failures, for each shard."""
        return self._each("HLEN", lambda keys: keys.withdrawn(spout))

    def replayed(self, spout: int, roots: Sequence[int]) -> set[int]:
        """Those of the roots whose replay was requested."""
        members = (root.to_bytes(8, "big") for root in roots)
        scores = self.ask(0, "ZMSCORE", self.keys[0].replayed(spout), *members)
        return {root for root, score in zip(roots, scores, strict=True) if score is not None}

    def forget_replayed(self, spout: int, until_ms: int) -> None:
        """Forgets which replays were requested before a time."""
        key = self.keys[0].replayed(spout)
        while some := self.ask(0, "ZRANGEBYSCORE", key, "-inf", until_ms, "LIMIT", 0, 1000):
            self.ask(0, "ZREM", key, *some)

    # -- Spark runs ----------------------------------------------------------------------------------------------

    def have_progress(self, spouts: Iterable[int]) -> list[bool]:
        """For each spout: whether it has the progress of a run."""
        keys = (self.keys[0].progress(spout) for spout in spouts)
        return [bool(found) for found in self.transport.run(Command(0, ("EXISTS", key)) for key in keys)]

    def progress_sizes(self, spouts: Iterable[int]) -> list[int]:
        """For each spout: how many entries the progress of its run has."""
        keys = (self.keys[0].progress(spout) for spout in spouts)
        return self.transport.run(Command(0, ("HLEN", key)) for key in keys)

    def progress_left_ms(self, spout: int) -> int:
        """Time until the progress of a run is forgotten; negative: never."""
        return int(self.ask(0, "PTTL", self.keys[0].progress(spout)))

    def run_note(self, spout: int) -> bytes | None:
        """The roots of the run in progress, as put_run_note() was given them."""
        found: bytes | None = self.ask(0, "GET", self.keys[0].run(spout))
        return found

    def put_run_note(self, spout: int, note: str) -> None:
        self.ask(0, "SET", self.keys[0].run(spout), note)

    def delete_run_note(self, spout: int) -> None:
        self.ask(0, "DEL", self.keys[0].run(spout))

    # -- how they are sent ---------------------------------------------------------------------------------------

    def ask(self, shard: int, *args: Argument) -> Any:
        """One shard's reply to any command, for tests that look inside. The packages ask by the names above."""
        return self.transport.run_one(Command(shard, args))

    def _each(self, *args: Callable[[ShardKeys], Argument] | Argument) -> list[Any]:
        """Every shard's reply; a function among the words gives the shard's key."""
        return self.transport.run(
            Command(shard, tuple(arg(keys) if callable(arg) else arg for arg in args))
            for shard, keys in enumerate(self.keys)
        )


# -- before a namespace is open ----------------------------------------------------------------------------------------


def read_meta(
    transport: Transport, namespace: str, places: Iterable[tuple[int, int]], names: Sequence[str]
) -> list[list[bytes | None]]:
    """Fields of the meta of shards, each asked for at a place: its number, and the number that says where to ask."""
    return transport.run(
        Command(where, ("HMGET", ShardKeys(namespace, shard, 0).meta, *names)) for shard, where in places
    )


def read_info(transport: Transport, server: int) -> str:
    """What a server says about itself."""
    return str(transport.run_one(Command(server, ("INFO",))).decode(errors="replace"))


def ms_of(reply: Sequence[Any]) -> int:
    """The server's clock in ms, from its reply to TIME."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000
