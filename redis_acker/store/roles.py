"""Least privilege on the server, by role: the keys and commands that a part of the product uses, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from redis_acker.errors import BadInput
from redis_acker.store.keys import KeyKind, check_namespace, key_patterns
from redis_acker.store.scripts import script

_CONNECTING = ("ping", "select", "cluster|slots", "command")
"""What clients send when they connect; the last two only to a cluster."""

_LOADING = ("script|load", "script|exists")
"""For those who bring the scripts to the servers. With SCRIPT LOAD a user can run any script of its own."""
_OPENING = ("hmget",)
_READING = (
    *("hget", "hgetall", "hlen", "hmget", "hscan", "get", "pttl", "exists", "time"),
    *("xlen", "xrange", "xrevrange", "xpending", "xinfo|groups", "xinfo|consumers"),
)
_CALL = re.compile(r"\bp?call\('(\w+)'(?:, '([A-Z]+)')?")
_WITH_SUBCOMMANDS = ("XGROUP", "XINFO")


@dataclass(frozen=True)
class Right:
    """Commands on some keys."""

    keys: tuple[KeyKind, ...]
    commands: tuple[str, ...]

    def selector(self, namespace: str) -> str:
        """As an ACL selector: these commands on these keys, whatever else the user may do."""
        patterns = (f"~{pattern}" for pattern in key_patterns(namespace, *self.keys))
        return f"({' '.join([*(f'+{command}' for command in self.commands), *patterns])})"


@dataclass(frozen=True)
class Role:
    """A part of the product, and what it may do."""

    name: str
    purpose: str
    scripts: tuple[str, ...]
    commands: tuple[str, ...]
    """In addition to those of its scripts."""
    keys: tuple[KeyKind, ...] = ("all",)
    rights: tuple[Right, ...] = ()
    """What it needs of its commands on keys; empty: all of them on all of its keys."""

    def rules(self, namespace: str, *, selectors: bool = True) -> list[str]:
        """Rules for ACL SETUSER. They take all other rights away, and leave passwords alone.

        A server without selectors (Redis 6.2) cannot tell which command goes with which key: all go with all.
        """
        check_namespace(namespace)
        on_keys = {command for right in self.rights for command in right.commands} if selectors else set[str]()
        return [
            "on",
            "resetkeys",
            "resetchannels",
            *(["clearselectors"] if selectors else []),
            "-@all",
            *(f"~{pattern}" for pattern in key_patterns(namespace, *self.keys)),
            *(f"+{command}" for command in sorted(self.all_commands() - on_keys)),
            *(right.selector(namespace) for right in self.rights if selectors),
        ]

    def all_commands(self) -> set[str]:
        return {*_CONNECTING, "evalsha", *self.commands, *_commands_of(self.scripts)}

    def uses(self, namespace: str) -> list[tuple[str, str]]:
        """Its commands, each with a key that it needs it for."""
        keys_of = {command: right.keys[0] for right in self.rights for command in right.commands}
        return [
            (command, key_patterns(namespace, keys_of.get(command, "settings"))[0].replace("*", "0"))
            for command in sorted(self.all_commands())
        ]


def _commands_of(names: Iterable[str]) -> set[str]:
    """The commands that scripts call, with the subcommand where a right may name one."""
    found: set[str] = set()
    for name in names:
        for command, subcommand in _CALL.findall(script(name).source):
            is_narrow = command in _WITH_SUBCOMMANDS and subcommand
            found.add(f"{command}|{subcommand}".lower() if is_narrow else command.lower())
    return found


_LOOKING = ("open", "spout", "inspect", "page")
_DRIVING = (
    *(
        "allocate",
        "init",
        "ack",
        "ack_edges",
        "edge_states",
        "fail",
        "extend",
        "join",
        "release",
        "lease",
        "unlease",
        "accept",
        "bury",
        "history",
    ),
    *("begin_portion", "keep_portion", "leave_portion", "set_aside_entry", "set_aside_field"),
)
_WITHDRAWING = ("join", "lease", "unlease", "withdraw", "put_back")
_OPERATING = (
    *("rotate", "history", "expired", "drain", "set_aside_entry", "set_aside_field", "fail", "extend"),
    *("request", "revive"),
    *_WITHDRAWING,
)
_STREAMS = ("xreadgroup", "xautoclaim", "xpending", "xgroup|delconsumer")

# A script runs with the rights of its caller. So whatever a script does to a key, its caller may also do by itself; but
# not to other keys, and not by other commands.
_RECORDING = (
    Right(("quarantine",), ("hlen", "hset")),
    Right(("streams",), ("xadd", "xlen")),
)
_EXECUTOR_RIGHTS = (
    *_RECORDING,
    Right(("scratch",), ("bitop", "del", "get", "mset", "set", "setrange")),
    Right(("settings",), ("hget", "hmget")),
    Right(("counters",), ("hexists", "hget", "hincrby", "hlen", "hset")),
    Right(("records",), ("hdel", "hget", "hlen", "hmget", "hset")),
    Right(("finished",), ("hmget", "hset")),
    Right(("runs",), ("hdel", "hget", "hmget", "hscan", "hset")),
    Right(("rows",), ("hset", "pexpire")),
)
_ROTATOR_RIGHTS = (
    *_RECORDING,
    Right(("scratch",), ("del",)),
    Right(("settings",), ("hget", "hmget", "hset")),
    Right(("counters",), ("hdel", "hexists", "hget", "hincrby", "hlen", "hset")),
    Right(("records",), ("exists", "hdel", "hget", "hlen", "hmget", "hscan", "hset", "rename")),
    Right(("finished",), ("exists", "hmget", "hset", "rename", "unlink")),
)

ROLES = {
    role.name: role
    for role in (
        Role(
            "executor",
            "works on the portions of a Spark run: initialises, acks, fails and extends roots from a worker",
            ("open", "init", "ack", "ack_edges", "edge_states", "fail", "extend", "begin_portion", "keep_portion"),
            (*_OPENING, "pexpire", "hscan"),
            keys=("blocks", "rows", "runs"),
            rights=_EXECUTOR_RIGHTS,
        ),
        Role(
            "spout",
            "drives spouts: allocates and initialises roots, reads their final events, keeps retries and dead letters",
            (*_LOOKING, *_DRIVING),
            (*_LOADING, *_STREAMS, *_READING, "hset", "hdel", "hincrby", "set", "pexpire", "info"),
        ),
        Role(
            "rotator",
            "rotates and drains expired roots into the failure streams",
            ("open", "rotate", "history", "expired", "drain"),
            (*_LOADING, *_OPENING, "hscan", "exists", "info"),
            keys=("blocks",),
            rights=_ROTATOR_RIGHTS,
        ),
        Role(
            "inspector",
            "reads, and changes nothing",
            (),
            (*_READING, "info", "latency|histogram"),
        ),
        Role(
            "operator",
            "runs the commands that act: rotate, drain, replay, dead, runs, quarantine, pause, fail, extend",
            (*_LOOKING, *_OPERATING),
            (*_LOADING, *_READING, "hset", "hdel", "zmscore", "zrangebyscore", "zrem", "info"),
        ),
    )
}


def role(name: str) -> Role:
    if name not in ROLES:
        raise BadInput(f"There is no role {name!r}: the roles are {', '.join(ROLES)}.")
    return ROLES[name]
