"""Least rights on the server, by role: the keys and commands that a part of the product uses, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from redis_acker.errors import BadInput
from redis_acker.keys import KeyKind, key_patterns
from redis_acker.scripts import script
from redis_acker.settings import check_namespace

_CONNECTING = ("ping", "select", "cluster|slots", "command")
"""What clients send when they connect: the last two to a cluster."""

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
    """What a part of the product does."""

    name: str
    purpose: str
    scripts: tuple[str, ...]
    commands: tuple[str, ...]
    """Beside those of its scripts."""
    keys: tuple[KeyKind, ...] = ("all",)

    def rules(self, namespace: str) -> list[str]:
        """Rules for ACL SETUSER. They take away all other rights and leave passwords as they are."""
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
    """The commands that scripts call, with the subcommand where rights go by it."""
    found: set[str] = set()
    for name in names:
        for command, subcommand in _CALL.findall(script(name).source):
            is_narrow = command in _WITH_SUBCOMMANDS and subcommand
            found.add(f"{command}|{subcommand}".lower() if is_narrow else command.lower())
    return found


_LOOKING = ("open", "spout", "inspect", "page")
_DRIVING = ("allocate", "init", "ack", "fail", "extend", "join", "release", "lease", "unlease", "accept")
_OPERATING = ("rotate", "drain", "fail", "extend", "join", "lease", "unlease", "take", "restore", "request", "revive")
_STREAMS = ("xreadgroup", "xautoclaim", "xpending", "xgroup|delconsumer")

ROLES = {
    role.name: role
    for role in (
        Role(
            "executor",
            "acks, fails and extends roots from a worker",
            ("open", "ack", "fail", "extend"),
            (*_OPENING, "pexpire"),
            keys=("blocks", "rows"),
        ),
        Role(
            "spout",
            "drives spouts: allocates and initialises roots, reads their final events, keeps retries and dead letters",
            (*_LOOKING, *_DRIVING),
            (*_STREAMS, *_READING, "hset", "hdel", "set", "pexpire", "info"),
        ),
        Role(
            "rotator",
            "rotates and drains expired roots into the failure streams",
            ("open", "rotate", "drain"),
            (*_OPENING, "hscan", "exists", "info"),
            keys=("blocks",),
        ),
        Role(
            "inspector",
            "looks, and changes nothing",
            (),
            (*_READING, "info"),
        ),
        Role(
            "operator",
            "runs the commands that act: rotate, drain, replay, dead, fail, extend",
            (*_LOOKING, *_OPERATING),
            (*_READING, "hset", "hdel", "zmscore", "zrangebyscore", "zrem", "info"),
        ),
    )
}


def role(name: str) -> Role:
    if name not in ROLES:
        raise BadInput(f"There is no role {name!r}: the roles are {', '.join(ROLES)}.")
    return ROLES[name]
