"""Least privilege on the server, by role: the keys and commands that a part of the product uses, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from redis_acker.errors import BadInput
from redis_acker.store.keys import KeyKind, key_patterns
from redis_acker.store.namespace import check_namespace
from redis_acker.store.scripts import script

_CONNECTING = ("ping", "select", "cluster|slots", "command")
"""What clients send when they connect; the last two only to a cluster."""

_SCRIPTING = ("evalsha", "script|load")
_OPENING = ("hmget",)
_READING = (
    *("hget", "hgetall", "hlen", "hmget", "hscan", "get", "pttl", "exists", "time"),
    *("xlen", "xrange", "xrevrange", "xpending", "xinfo|groups", "xinfo|consumers"),
)
_CALL = re.compile(r"\bcall\('(\w+)'(?:, '([A-Z]+)')?")
_WITH_SUBCOMMANDS = ("XGROUP", "XINFO")


@dataclass(frozen=True)
class Role:
    """A part of the product, and what it may do."""

    name: str
    purpose: str
    scripts: tuple[str, ...]
    commands: tuple[str, ...]
    """In addition to those of its scripts."""
    keys: tuple[KeyKind, ...] = ("all",)

    def rules(self, namespace: str) -> list[str]:
        """Rules for ACL SETUSER. They take all other rights away, and leave passwords alone."""
        check_namespace(namespace)
        allowed = {*_CONNECTING, *_SCRIPTING, *self.commands, *_commands_of(self.scripts)}
        return [
            "on",
            "resetkeys",
            "resetchannels",
            "-@all",
            *(f"~{pattern}" for pattern in key_patterns(namespace, *self.keys)),
            *(f"+{command}" for command in sorted(allowed)),
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
    *("allocate", "init", "ack", "fail", "extend", "join", "release", "lease", "unlease", "accept", "bury"),
    *("begin_portion", "keep_portion", "leave_portion", "set_aside_entry", "set_aside_field"),
)
_WITHDRAWING = ("join", "lease", "unlease", "withdraw", "put_back")
_OPERATING = (
    *("rotate", "expired", "drain", "set_aside_entry", "set_aside_field", "fail", "extend", "request", "revive"),
    *_WITHDRAWING,
)
_STREAMS = ("xreadgroup", "xautoclaim", "xpending", "xgroup|delconsumer")

ROLES = {
    role.name: role
    for role in (
        Role(
            "executor",
            "works on the portions of a Spark run: initialises, acks, fails and extends roots from a worker",
            ("open", "init", "ack", "fail", "extend", "begin_portion", "keep_portion"),
            (*_OPENING, "pexpire"),
            keys=("blocks", "rows", "runs"),
        ),
        Role(
            "spout",
            "drives spouts: allocates and initialises roots, reads their final events, keeps retries and dead letters",
            (*_LOOKING, *_DRIVING),
            (*_STREAMS, *_READING, "hset", "hdel", "hincrby", "set", "pexpire", "info"),
        ),
        Role(
            "rotator",
            "rotates and drains expired roots into the failure streams",
            ("open", "rotate", "expired", "drain"),
            (*_OPENING, "hscan", "exists", "info"),
            keys=("blocks",),
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
            (*_READING, "hset", "hdel", "zmscore", "zrangebyscore", "zrem", "info"),
        ),
    )
}


def role(name: str) -> Role:
    if name not in ROLES:
        raise BadInput(f"There is no role {name!r}: the roles are {', '.join(ROLES)}.")
    return ROLES[name]
