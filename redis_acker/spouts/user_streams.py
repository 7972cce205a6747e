"""Streams of the user's, read by ranges of entry ids, and what is noted beside them: how far a reader has committed,
and which entries are finished."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis_acker.errors import BadInput, MemoryFull, ScriptFailed, ServerUnavailable, UnsupportedServer, WrongKeyType
from redis_acker.store.connect import open_servers
from redis_acker.store.transport import Argument, Command, Transport

FIRST_ID = "0-0"
"""Before every entry."""

AWAY_S = 600.0
"""How long to wait for a server that is away."""

_RETRY_FOR_S = 10.0
_COUNTED_AT_ONCE = 1_000
_DELETED_AT_ONCE = 200
_TRIMMED_AT_ONCE = 10_000
"""Entries for one command, so that none holds up the server."""

_MOST_IN_A_MS = 2**64 - 1

_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")

log = logging.getLogger(__name__)


def stream_names(stream: str, shards: int) -> list[str]:
    """The stream itself, or orders:0, orders:1, ... where several share the load."""
    is_tagged = re.search(r"\{[^{}]+\}", stream) is not None
    if not stream or (re.search("[{}]", stream) and not is_tagged):
        raise BadInput(f"The name of a stream is a text, with braces around a hash tag if at all, not {stream!r}.")
    return [stream] if shards == 1 else [f"{stream}:{shard}" for shard in range(shards)]


def order_of(entry_id: str) -> str:
    """An id as a text of fixed length, which sorts as the ids do."""
    found = _ID.fullmatch(entry_id)
    if found is None:
        raise BadInput(f"{entry_id!r} is not the id of an entry, such as 1700000000000-0.")
    return f"{int(found[1]):020d}-{int(found[2]):020d}"


def _id_of(order: bytes) -> str:
    return "-".join(str(int(part)) for part in order.split(b"-"))


def note_key(stream: str, *names: str) -> str:
    """A key of ours beside a stream, on the same node of a cluster."""
    tagged = re.search(r"\{([^{}]+)\}", stream)
    tag, rest = (tagged[1], [stream]) if tagged else (stream, [])
    return ":".join([f"acker-stream:{{{tag}}}", *rest, *names])


@dataclass(frozen=True)
class StreamInfo:
    """A stream at one moment, as its server counts."""

    added: int = 0
    """Entries that were ever added."""
    length: int = 0
    first: str | None = None
    """Id of the oldest entry that is there."""
    last: str = FIRST_ID
    """The highest id that an entry ever had."""
    deleted: str = FIRST_ID
    """The highest id that was deleted by XDEL."""


class UserStreams:
    """Streams, each on the server that its name or its number says. Every call may be repeated."""

    def __init__(self, url: str | Sequence[str] | None, names: Sequence[str], *, away_s: float = AWAY_S) -> None:
        self.names = list(names)
        self._servers = open_servers(url, lambda shard: self.names[shard])
        self._transport = Transport(self._servers, retry_for_s=min(_RETRY_FOR_S, away_s))
        self._away_s = away_s

    def close(self) -> None:
        self._servers.close()

    def run(self, commands: Iterable[Command]) -> list[Any]:
        """Runs commands that may be repeated, however long a server is away, and says that it waits."""
        listed, until_s = list(commands), time.monotonic() + self._away_s
        while True:
            try:
                return self._transport.run(listed)
            except ServerUnavailable as error:
                if time.monotonic() >= until_s:
                    raise
                log.warning("%s It is waited for.", error)
            except MemoryFull as error:
                raise MemoryFull(
                    f"The server's memory is full (maxmemory), so it refused to write to {self.names} or beside them: "
                    "make room and start again, which goes on where this stopped."
                ) from error
            except WrongKeyType as error:
                raise WrongKeyType(
                    f"A key of {self.names} does not hold a stream, or one of the notes beside it is something else: "
                    "name another stream, or remove that key."
                ) from error

    def run_on(self, shard: int, *args: Argument) -> Any:
        return self.run([Command(shard, args)])[0]

    # -- reading -------------------------------------------------------------------------------------------------

    def info(self, shard: int) -> StreamInfo:
        try:
            flat = self.run_on(shard, "XINFO", "STREAM", self.names[shard])
        except ScriptFailed as error:
            if "no such key" not in str(error):
                raise
            return StreamInfo()
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        if b"entries-added" not in found:
            raise UnsupportedServer(
                "The server does not count the entries that were added to a stream, so that missing ones would go "
                "unnoticed: use Redis 7.0 or newer, or Valkey."
            )
        first = found[b"first-entry"]
        return StreamInfo(
            found[b"entries-added"],
            found[b"length"],
            first[0].decode() if first else None,
            found[b"last-generated-id"].decode(),
            found[b"max-deleted-entry-id"].decode(),
        )

    def count(self, shard: int, after: str, last: str, most: int) -> tuple[int, str]:
        """How many entries are in a range, up to so many, and the last of them."""
        found, at = 0, after
        while found < most:
            args: list[Argument] = [at, last, min(_COUNTED_AT_ONCE, most - found)]
            counted, name = self.run([Command.call("stream_count", shard, [self.names[shard]], args)])[0]
            if not counted:
                break
            found, at = found + counted, name.decode()
        return found, at

    def entries(self, shard: int, after: str, last: str, most: int) -> list[tuple[bytes, list[bytes]]]:
        """The first entries of a range: id, and a flat list of names and values."""
        reply: list[Any] = self.run_on(shard, "XRANGE", self.names[shard], f"({after}", last, "COUNT", most)
        return [(entry[0], entry[1]) for entry in reply]

    # -- what is noted of a reader -------------------------------------------------------------------------------

    def note(self, shard: int, **fields: Argument) -> None:
        flat = [part for pair in fields.items() for part in pair]
        self.run_on(shard, "HSET", note_key(self.names[shard], "reader"), *flat)

    def noted(self, shard: int) -> dict[str, str]:
        flat = self.run_on(shard, "HGETALL", note_key(self.names[shard], "reader"))
        return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def finished_count(self, shard: int) -> int:
        """Entries that are finished, and still there because their batch is not committed."""
        return int(self.run_on(shard, "ZCARD", note_key(self.names[shard], "finished")))

    # -- deleting ------------------------------------------------------------------------------------------------

    def finish(self, shard: int, ids: Sequence[str]) -> None:
        """Notes that entries are finished, and deletes those of committed batches."""
        key = note_key(self.names[shard], "finished")
        for at in range(0, len(ids), _DELETED_AT_ONCE):
            pairs = [part for one in ids[at : at + _DELETED_AT_ONCE] for part in (0, order_of(one))]
            self.run_on(shard, "ZADD", key, *pairs)
        self.sweep(shard)  # after the note: either this or a commit at the same time sees both

    def commit(self, shard: int, entry_id: str) -> None:
        """Notes that no entry up to this one is read again, and deletes those of them that are finished."""
        self.note(shard, committed=entry_id)
        self.sweep(shard)

    def sweep(self, shard: int) -> None:
        """Deletes entries that are finished and committed."""
        committed = self.noted(shard).get("committed", FIRST_ID)
        key = note_key(self.names[shard], "finished")
        while orders := self.run_on(
            shard, "ZRANGEBYLEX", key, "-", f"[{order_of(committed)}", "LIMIT", 0, _DELETED_AT_ONCE
        ):
            self.run_on(shard, "XDEL", self.names[shard], *map(_id_of, orders))
            self.run_on(shard, "ZREM", key, *orders)  # last: after a crash in between, both are done again

    def trim(self, shard: int, last: str) -> None:
        """Deletes all entries up to this one."""
        ms, number = (int(part) for part in last.split("-"))
        following = f"{ms}-{number + 1}" if number < _MOST_IN_A_MS else f"{ms + 1}-0"
        # In steps of whole nodes; what is then left of one node goes at the end.
        while self.run_on(shard, "XTRIM", self.names[shard], "MINID", "~", following, "LIMIT", _TRIMMED_AT_ONCE):
            pass
        self.run_on(shard, "XTRIM", self.names[shard], "MINID", following)
