"""The checks of doctor. Each yields findings with a level and a remedy, and none raises for what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from redis_acker.cli.output import counted
from redis_acker.store.namespace import LEAST_VERSION
from redis_acker.views.overview import Overview
from redis_acker.views.probes import is_overdue
from redis_acker.views.readers import StreamView
from redis_acker.views.servers import ServerView
from redis_acker.views.texts import byte_size, duration

Level = Literal["ok", "warn", "bad"]

SLOW_MS = 20.0
CLOCK_MS = 1_000.0
LAG_S = 10
FULL_SHARE = 0.9
UNREAD_MS = 60_000
"""A stream counts as unread if its first entry is older, and its readers have been silent for longer."""


@dataclass(frozen=True)
class Finding:
    """What one check found, and where."""

    level: Level
    check: str
    where: str
    text: str
    remedy: str | None = None


def of_server(server: ServerView) -> Iterator[Finding]:
    """What one server says about itself."""

    def found(level: Level, check: str, text: str, remedy: str | None = None) -> Finding:
        return Finding(level, check, server.address, text, remedy)

    if server.error:
        what = "user, password and ACL rights" if server.is_denied else "that it runs and can be reached"
        text = f"{'refuses access' if server.is_denied else 'unreachable'}: {server.error}"
        yield found("bad", "reachable", text, f"Check {what}.")
        return
    assert server.latency_ms is not None
    slow = server.latency_ms > SLOW_MS
    nearer = "Run clients closer to the server, or send larger batches." if slow else None
    yield found("warn" if slow else "ok", "reachable", f"answers in {server.latency_ms:.1f} ms", nearer)
    if not server.info:
        allow = "Allow INFO (+info), or ask your provider, to check version, memory and persistence."
        yield found("warn", "info", "says nothing about itself: INFO is forbidden", allow)
        return
    for check in (_version, _role, _eviction, _memory, _persistence, _replication):
        for level, name, text, remedy in check(server.info, server):
            yield found(level, name, text, remedy)


_Parts = tuple[Level, str, str, "str | None"]


def _version(info: dict[str, object], server: ServerView) -> Iterator[_Parts]:
    version = str(info.get("redis_version", ""))
    old = bool(version) and tuple(int(part) for part in version.split(".")[:2]) < LEAST_VERSION
    yield (
        "bad" if old else "ok",
        "version",
        server.version or "unknown",
        "Use Redis 6.2 or later, or Valkey." if old else None,
    )


def _role(info: dict[str, object], server: ServerView) -> Iterator[_Parts]:
    if info.get("loading") == 1:
        yield "bad", "role", "is still loading its data", "Wait until it is done."
    if info.get("role") == "slave":
        yield "bad", "role", "is a replica, and refuses writes", "Name the primary, or use a redis+sentinel:// URL."


def _eviction(info: dict[str, object], server: ServerView) -> Iterator[_Parts]:
    policy = info.get("maxmemory_policy")
    if policy is None:
        yield "warn", "eviction", "does not say what its eviction policy is", "Make sure that it is noeviction."
    elif str(policy).startswith("allkeys"):
        level: Level = "bad" if server.max_memory else "warn"
        yield level, "eviction", f"{policy} loses pending roots when memory is full", "Set maxmemory-policy noeviction."
    elif policy != "noeviction":
        yield "ok", "eviction", f"{policy}, which keeps roots: their keys have no expiry", None
    else:
        yield "ok", "eviction", "noeviction", None


def _memory(info: dict[str, object], server: ServerView) -> Iterator[_Parts]:
    used, most = server.used_memory, server.max_memory
    if used is None:
        yield "warn", "memory", "does not say how much it uses", "Watch it with your provider's tools."
    elif most is None:
        yield "warn", "memory", f"{byte_size(used)} used, no limit", "Set maxmemory, or the system may kill the server."
    else:
        text = f"{byte_size(used)} of {byte_size(most)} used"
        remedy = "Raise maxmemory, or let pending roots finish and streams be read."
        level: Level = "bad" if used >= most else "warn" if used >= FULL_SHARE * most else "ok"
        yield level, "memory", text, None if level == "ok" else remedy


def _persistence(info: dict[str, object], server: ServerView) -> Iterator[_Parts]:
    if info.get("aof_enabled") == 1 and info.get("aof_last_write_status", "ok") != "ok":
        yield "bad", "persistence", "cannot write its append-only file", "Check its log and its disk."
    elif info.get("aof_enabled") == 1:
        yield "ok", "persistence", "append-only file", None
    elif info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield "bad", "persistence", "could not write its last snapshot", "Check its log and its disk."
    elif info.get("aof_enabled") is not None:
        remedy = "Set appendonly yes; docs/operations.md says what each setting costs."
        yield "warn", "persistence", "no append-only file: a restart loses roots since the last snapshot", remedy


def _replication(info: dict[str, object], server: ServerView) -> Iterator[_Parts]:
    replicas = [one for name, one in info.items() if name.startswith("slave") and isinstance(one, dict)]
    if not replicas:
        return
    lags = [int(one.get("lag", 0)) for one in replicas]
    offline = [one for one in replicas if one.get("state") != "online"]
    text = f"{counted(len(replicas), 'replica')}, {max(lags)} s behind"
    if offline or max(lags) > LAG_S:
        yield (
            "warn",
            "replication",
            f"{text}, {len(offline)} not online",
            "A failover now would lose roots: check the replicas.",
        )
    else:
        yield "ok", "replication", text, None


def of_clocks(servers: list[ServerView]) -> Iterator[Finding]:
    """Each server ages roots by its own clock; ids and logs are compared across machines."""
    for server in servers:
        if server.error:
            continue
        if server.clock_ms is None:
            yield Finding("warn", "clock", server.address, "does not say: TIME is forbidden", "Allow +time.")
        elif abs(server.clock_ms) > CLOCK_MS:
            text = f"{duration(abs(server.clock_ms))} {'ahead of' if server.clock_ms > 0 else 'behind'} this machine"
            yield Finding("warn", "clock", server.address, text, "Synchronise the clocks of all machines (NTP).")
        else:
            yield Finding("ok", "clock", server.address, f"{abs(server.clock_ms):.0f} ms from this machine's")


def of_rotation(view: Overview) -> Iterator[Finding]:
    tick_ms = view.settings.tick_ms
    late = [one for one in view.shards if is_overdue(one.due_in_ms, tick_ms)]
    waiting = sum(one.expired_blocks for one in view.shards)
    if late:
        shards = ", ".join(str(one.shard) for one in late[:10])
        text = f"{duration(view.overdue_ms)} overdue in shard{'' if len(late) == 1 else 's'} {shards}: no rotator runs"
        level: Level = "bad" if view.pending > 0 or waiting else "warn"
        yield Finding(level, "rotation", view.namespace, text, "Run redis-acker rotate --watch, or a driver.")
    else:
        yield Finding("ok", "rotation", view.namespace, f"on time, every {duration(tick_ms)}")
    if waiting:
        text = f"{waiting:,} expired blocks wait for the drain"
        yield Finding(
            "warn" if late else "ok", "drain", view.namespace, text, "Run redis-acker rotate." if late else None
        )
    waits = sum(one.stats.waits for one in view.shards)
    if waits:
        text = f"{waits:,} rotations have had to wait for a drain: timeouts came late"
        yield Finding("ok", "waits", view.namespace, text)


def of_foreign(view: Overview) -> Iterator[Finding]:
    """What other programs wrote into the namespace, and what is kept for roots that nobody initialises."""
    if view.quarantined:
        text = f"{counted(view.quarantined, 'record')} could not be read: another program writes to this namespace"
        yield Finding("warn", "quarantine", view.namespace, text, "Look with redis-acker quarantine list, then purge.")
    refused = sum(one.stats.early_refused for one in view.shards)
    if refused:
        text = f"{counted(refused, 'call')} refused: too many acks for roots that nobody initialised"
        yield Finding("warn", "early acks", view.namespace, text, "Look for a sender with stale or foreign roots.")


def of_streams(streams: list[StreamView]) -> Iterator[Finding]:
    for one in streams:
        silent = one.idle_ms is None or one.idle_ms > UNREAD_MS
        where = f"{one.kind} of {one.spout}"
        if one.entries and silent and (one.oldest_ms or 0) > UNREAD_MS:
            seen = "never" if one.idle_ms is None else f"{duration(one.idle_ms)} ago"
            entries = f"{one.entries:,} entr{'y' if one.entries == 1 else 'ies'}"
            text = f"{entries}, the first {duration(one.oldest_ms)} old; last reader seen: {seen}"
            remedy = (
                "Run the spout's driver, or init with quiet=True."
                if one.kind == "completions"
                else "Run the spout's driver, or redis-acker drain."
            )
            yield Finding("warn", "streams", where, text, remedy)
    if not any(one.entries for one in streams):
        yield Finding("ok", "streams", "all", "nothing waits to be read")
