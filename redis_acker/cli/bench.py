"""`redis-acker bench`: how fast the servers are, measured from this client."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli.options import PATIENCE_S, Store, store_options
from redis_acker.errors import AccessDenied, ServerUnavailable

if TYPE_CHECKING:
    import redis

    from redis_acker.cli.measuring import Rounds
    from redis_acker.store.acker import Acker

ROOTS = 100_000
"""Roots per round."""
HSETS = 100_000
"""HSET requests per round."""
ROUNDS = 10
LONGEST_S = 8.0
"""No round starts after this time."""
LIFE_MS = 3_600_000
"""Timeout of the roots: none of them expires while it is measured."""

QUIET_CHECKS, QUIET_S = 5, 0.1
"""After an interruption: how often, and how far apart, nothing must be found before the server counts as done."""

FIELD, VALUE = "field:{:06}", "x" * 8


@dataclass(frozen=True)
class Measured:
    """Medians over the rounds, in roots or requests per second."""

    servers: list[str]
    rounds: int
    roots_a_round: int
    block_size: int
    hset_per_s: float
    """Pipelined HSET requests of 8 bytes on one server, without waiting for replies."""
    init_per_s: float
    ack_per_s: float
    complete_per_s: float
    ack_vs_hset: float
    bytes_per_root: float | None
    """Of a pending root in a full block; None with several shards, or if the server does not say."""


@click.command()
@store_options
def bench(store: Store) -> None:
    """Measure how fast the servers are.

    Initialises, acks and completes roots in blocks, and compares that with
    plain pipelined HSETs in the same run. Takes about ten seconds. It works in
    a namespace of its own and deletes it at the end; --namespace is not used.
    Other clients of the servers will notice the load.

    \b
    Examples:
      redis-acker bench --url redis://localhost:6379
      redis-acker bench --json | jq .ack_vs_hset
    """
    from redis_acker.store.acker import Acker
    from redis_acker.store.urls import hide_password

    namespace = f"bench-{secrets.token_hex(4)}"
    with Acker(store.target, namespace=namespace, timeout_ms=LIFE_MS, retry_for_s=PATIENCE_S) as acker:
        names = [hide_password(url) for url in acker.urls]
        size = f"{ROOTS:,} roots and {HSETS:,} hash fields at a time, a few MB"
        hsets = Hsets(acker)
        try:
            store.out.note(f"Writes {size}, to namespace {namespace} on {', '.join(names)}, and deletes them again.")
            with _explained():
                rounds, bytes_per_root = _measure(store, acker, hsets)
        finally:
            _delete(acker, hsets, interrupted=sys.exc_info()[0] is not None)
        block_size = acker.settings.block_size
    measured = Measured(
        servers=names,
        rounds=len(rounds),
        roots_a_round=ROOTS,
        block_size=block_size,
        hset_per_s=rounds.hset_per_s,
        init_per_s=rounds.per_s("init"),
        ack_per_s=rounds.per_s("ack"),
        complete_per_s=rounds.per_s("complete"),
        ack_vs_hset=rounds.vs_hset("ack"),
        bytes_per_root=bytes_per_root,
    )
    if store.out.as_json:
        store.out.document("bench", measured)
    else:
        _print(store, measured, rounds)


def _measure(store: Store, acker: Acker, hsets: Hsets) -> tuple[Rounds, float | None]:
    """The rounds, and the bytes per pending root."""
    from redis_acker.cli.measuring import bytes_per_root, measure_rounds, rates_of_a_round

    with store.out.progress(ROUNDS + 1, "measuring") as progress:
        rounds = measure_rounds(
            ROUNDS, hsets.per_s, lambda: rates_of_a_round(acker, ROOTS), longest_s=LONGEST_S, done=progress.advance
        )
    client = acker.servers.client(0)
    if acker.settings.shards > 1 or _used_memory(client) is None:
        return rounds, None
    fresh, _ = bytes_per_root(acker, ROOTS, lambda: _used_memory(client) or 0)
    return rounds, fresh


@contextmanager
def _explained() -> Iterator[None]:
    """Turns errors of the plain client into ours."""
    from redis import exceptions

    try:
        yield
    except exceptions.NoPermissionError as error:
        raise AccessDenied(f"The server does not let this user measure ({error}): use one with more rights.") from None
    except exceptions.RedisError as error:
        raise ServerUnavailable(f"The server did not answer while it was measured ({error}): try again.") from None


class Hsets:
    """Pipelined HSETs on one server. It sends no replies, so that this client is not what is measured."""

    def __init__(self, acker: Acker) -> None:
        from redis_acker.cli.measuring import SPOUT

        self._client = acker.servers.client(0)
        self.key = acker.shards.keys[0].retries(acker.spout_number(SPOUT))
        pack: Callable[..., list[bytes]] = self._client.connection_pool.make_connection().pack_command
        requests = [("HSET", self.key, FIELD.format(i), VALUE) for i in range(HSETS)]
        commands = [("CLIENT", "REPLY", "OFF"), *requests, ("CLIENT", "REPLY", "ON")]
        self._packed = b"".join(part for command in commands for part in pack(*command))

    def per_s(self) -> float:
        from redis_acker.cli.measuring import seconds

        return HSETS / seconds(self._send)

    def _send(self) -> None:
        """Sends them all, and waits for the one reply that comes when they are done."""
        pool: Any = self._client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([self._packed])
            connection.read_response()
        except BaseException:
            connection.disconnect()  # replies may still be on their way
            raise
        finally:
            pool.release(connection)


def _used_memory(client: redis.Redis) -> int | None:
    from redis.exceptions import ResponseError

    try:
        info: Any = client.info("memory")
    except ResponseError:
        return None
    return int(info["used_memory"]) if "used_memory" in info else None


def _delete(acker: Acker, hsets: Hsets, *, interrupted: bool) -> None:
    """Deletes every key that was written. They are known: the keyspace is never searched."""
    from redis_acker.cli.measuring import SPOUT

    number = acker.spout_number(SPOUT)
    for shard, keys in enumerate(acker.shards.keys):
        for key in (*keys.with_streams([number]), keys.spouts, keys.sequences, *([hsets.key] if shard == 0 else [])):
            acker.shards.unlink(shard, key)
    # After an interruption the server may still be working on requests that it was sent.
    quiet = 0
    while interrupted and quiet < QUIET_CHECKS:
        time.sleep(QUIET_S)
        quiet = 0 if acker.shards.unlink(0, hsets.key) else quiet + 1


def _print(store: Store, measured: Measured, rounds: Rounds) -> None:
    names = {"inits": "init", "acks": "ack", "completing acks": "complete"}
    rows = [(text, int(rounds.per_s(name)), rounds.vs_hset(name)) for text, name in names.items()]
    hset = ("HSET requests, pipelined", int(measured.hset_per_s), 1.0)
    store.out.table(("", "per second", "to HSET"), [hset, *rows])
    store.out.line()
    if measured.bytes_per_root is not None:
        store.out.line(f"A pending root takes {measured.bytes_per_root:.1f} bytes, in blocks of {measured.block_size}.")
    store.out.line(f"Medians of {measured.rounds} rounds with {measured.roots_a_round:,} roots each, one client.")
