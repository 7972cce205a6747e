"""Which roles a user has the rights for, as far as the server says."""

from __future__ import annotations

import redis

from redis_acker.store.roles import ROLES
from redis_acker.views.servers import ask

_K = "<key>"

# Arguments with which the server can judge a command without running it. Commands that are not listed take a key.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "bitop": ("XOR", _K, _K),
    "cluster|slots": (),
    "command": (),
    "evalsha": ("0" * 40, "1", _K),
    "hdel": (_K, "f"),
    "hexists": (_K, "f"),
    "hget": (_K, "f"),
    "hincrby": (_K, "f", "1"),
    "hmget": (_K, "f"),
    "hscan": (_K, "0"),
    "hset": (_K, "f", "v"),
    "info": (),
    "mset": (_K, "v"),
    "pexpire": (_K, "1"),
    "ping": (),
    "rename": (_K, _K),
    "script|exists": ("0" * 40,),
    "script|load": ("return 1",),
    "select": ("0",),
    "set": (_K, "v"),
    "setrange": (_K, "0", "v"),
    "time": (),
    "xack": (_K, "g", "0-1"),
    "xadd": (_K, "*", "f", "v"),
    "xautoclaim": (_K, "g", "c", "0", "0"),
    "xclaim": (_K, "g", "c", "0", "0-1"),
    "xdel": (_K, "0-1"),
    "xgroup|create": (_K, "g", "0"),
    "xgroup|delconsumer": (_K, "g", "c"),
    "xinfo|consumers": (_K, "g"),
    "xpending": (_K, "g"),
    "xrange": (_K, "-", "+"),
    "xreadgroup": ("GROUP", "g", "c", "STREAMS", _K, ">"),
    "xrevrange": (_K, "+", "-"),
    "zadd": (_K, "0", "m"),
    "zmscore": (_K, "m"),
    "zrangebyscore": (_K, "0", "0"),
    "zrem": (_K, "m"),
    "zscore": (_K, "m"),
}


_NOT_NEEDED_EVERYWHERE = ("info", "command", "cluster|slots", "select")
"""Clients do without the first, and send the others only to clusters, or to databases other than 0."""


def missing_rights(client: redis.Redis, namespace: str) -> dict[str, list[str]] | None:
    """For each role, the commands that this user may not run on the namespace.

    None if the server does not say: it is older than Redis 7.0, or the user may not ask.
    """
    user = ask(client, "ACL", "WHOAMI")
    if user is None or _allows(client, _text(user), "ping", "") is None:
        return None
    needed = {
        name: [use for use in role.uses(namespace) if use[0] not in _NOT_NEEDED_EVERYWHERE]
        for name, role in ROLES.items()
    }
    missing = {
        use for use in {use for uses in needed.values() for use in uses} if _allows(client, _text(user), *use) is False
    }
    return {name: [use[0] for use in uses if use in missing] for name, uses in needed.items()}


def _allows(client: redis.Redis, user: str, command: str, key: str) -> bool | None:
    """None: the server cannot judge it."""
    arguments = [key if word == _K else word for word in _ARGUMENTS.get(command, (_K,))]
    answer = ask(client, "ACL", "DRYRUN", user, *command.split("|"), *arguments)
    return None if answer is None else _text(answer).upper() in ("OK", "TRUE")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
