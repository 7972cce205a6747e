"""`redis-acker bench`: what the servers do per second, measured with this client."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli.options import PATIENCE_S, Store, store_options
from redis_acker.errors import AccessDenied, ServerUnavailable

if TYPE_CHECKING:
    import redis

    from redis_acker.acker import Acker
    from redis_acker.connect import Servers

ROOTS = 100_000
"""Roots of one round."""
HSETS = 100_000
"""HSET requests of one round."""
ROUNDS = 10
"""After one that warms up."""
QUIET_CHECKS, QUIET_S = 5, 0.1
"""How often, and how far apart, nothing must be found of an interrupted round before it is over."""

LONGEST_S = 8.0
"""No round begins after this time."""
LIFE_MS = 3_600_000
"""Timeout of the roots: none of them times out while it is measured."""

SPOUT = "bench"
FIELD, VALUE = "field:{:06}", "x" * 8


@dataclass(frozen=True)
class Measured:
    """Medians over rounds, in roots or requests per second."""

    servers: list[str]
    rounds: int
    roots_a_round: int
    block_size: int
    hset_per_s: float
    """Pipelined HSET requests of 8 bytes, on one server, replies not waited for."""
    init_per_s: float
    ack_per_s: float
    complete_per_s: float
    ack_vs_hset: float
    bytes_per_root: float | None
    """Of a pending root in a full block; None where the server does not tell its memory."""


@click.command()
@store_options
def bench(store: Store) -> None:
    """Measure what the servers do per second.

    Takes about ten seconds. Roots in blocks are initialised, acked and
    completed, against plain pipelined HSETs in the same run. All of it in a
    namespace of its own, which is deleted at the end; --namespace is not used.
    Other clients of the servers will notice the load.

    \b
    Examples:
      redis-acker bench --url redis://localhost:6379
      redis-acker bench --json | jq .ack_vs_hset
    """
    from redis_acker.connect import hide_password, open_servers
    from redis_acker.keys import ShardKeys

    namespace = f"bench-{secrets.token_hex(4)}"
    servers = open_servers(store.target, lambda shard: ShardKeys(namespace, shard, 0).prefix)
    try:
        names = [hide_password(url) for url in servers.urls]
        size = f"{ROOTS:,} roots and {HSETS:,} hash fields at a time, some MB"
        store.out.note(f"Writes {size}, into namespace {namespace} on {', '.join(names)}, and deletes them again.")
        measured = _measure(store, servers, namespace, names)
    finally:
        servers.close()
    if store.out.as_json:
        store.out.document("bench", measured)
    else:
        _print(store, measured)


def _measure(store: Store, servers: Servers, namespace: str, names: list[str]) -> Measured:
    from redis_acker.acker import Acker

    with Acker(store.target, namespace=namespace, timeout_ms=LIFE_MS, retry_for_s=PATIENCE_S) as acker, _explained():
        client, key = servers.client(0), acker.shard_keys[0].retries(acker.spout_number(SPOUT))
        hsets = _packed_hsets(client, key)
        bytes_per_root, found, began = None, dict[str, list[float]](), time.monotonic()
        try:
            with store.out.progress(ROUNDS + 1, "measuring") as progress:
                for number in range(ROUNDS + 1):
                    rates, size = _round(acker, client, hsets)
                    progress.advance()
                    if number == 0:
                        bytes_per_root = size
                        continue
                    for name, rate in rates.items():
                        found.setdefault(name, []).append(rate)
                    if time.monotonic() - began > LONGEST_S:
                        break
        finally:
            _delete(acker, key, interrupted=sys.exc_info()[0] is not None)
        rates = {name: median(one) for name, one in found.items()}
        ratio = median(ack / hset for ack, hset in zip(found["ack"], found["hset"], strict=True))
        rounds, block_size = len(found["ack"]), acker.settings.block_size
        each = (rates["hset"], rates["init"], rates["ack"], rates["complete"])
        return Measured(names, rounds, ROOTS, block_size, *each, ratio, bytes_per_root)


@contextmanager
def _explained() -> Iterator[None]:
    """What goes wrong with a plain client, as errors of this package."""
    from redis import exceptions

    try:
        yield
    except exceptions.NoPermissionError as error:
        raise AccessDenied(f"The server does not let this user measure ({error}): take one with more rights.") from None
    except exceptions.RedisError as error:
        raise ServerUnavailable(f"The server did not answer while it was measured ({error}): try again.") from None


def _round(acker: Acker, client: redis.Redis, hsets: bytes) -> tuple[dict[str, float], float | None]:
    """Rates, and bytes per root."""
    from redis_acker.ids import new_edges

    hset_s = _seconds(lambda: _send(client, hsets))
    roots = acker.allocate(SPOUT, ROOTS)
    first, second = new_edges(ROOTS), new_edges(ROOTS)
    before = _used_memory(client)
    init_s = _seconds(lambda: acker.init(roots, first, quiet=True))
    after = _used_memory(client)
    ack_s = _seconds(lambda: acker.ack(roots, first ^ second))
    complete_s = _seconds(lambda: acker.ack(roots, second))
    rates = {"hset": HSETS / hset_s, "init": ROOTS / init_s, "ack": ROOTS / ack_s, "complete": ROOTS / complete_s}
    is_alone = acker.settings.shards == 1
    return rates, (after - before) / ROOTS if is_alone and before is not None and after is not None else None


def _packed_hsets(client: redis.Redis, key: str) -> bytes:
    """All requests in one stream of bytes. The server sends no replies, so that this client is not what is measured."""
    pack: Callable[..., list[bytes]] = client.connection_pool.make_connection().pack_command
    requests = [("HSET", key, FIELD.format(i), VALUE) for i in range(HSETS)]
    commands = [("CLIENT", "REPLY", "OFF"), *requests, ("CLIENT", "REPLY", "ON")]
    return b"".join(part for command in commands for part in pack(*command))


def _send(client: redis.Redis, packed: bytes) -> None:
    """Sends it and waits for the one reply, which comes when all is done."""
    connection: Any = client.connection_pool.get_connection()
    try:
        connection.send_packed_command([packed])
        connection.read_response()
    except BaseException:
        connection.disconnect()  # replies may still be on their way
        raise
    finally:
        client.connection_pool.release(connection)


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _used_memory(client: redis.Redis) -> int | None:
    from redis.exceptions import ResponseError

    try:
        info: Any = client.info("memory")
    except ResponseError:
        return None
    return int(info["used_memory"]) if "used_memory" in info else None


def _delete(acker: Acker, key: str, *, interrupted: bool) -> None:
    """Every key that was made: a namespace is never looked for in the keyspace."""
    from redis_acker.transport import Command

    number = acker.spout_number(SPOUT)
    commands = []
    for shard, keys in enumerate(acker.shard_keys):
        named = [*keys.with_streams([number]), keys.spouts, keys.sequences, *([key] if shard == 0 else [])]
        commands += [Command(shard, ("UNLINK", one)) for one in named]
    acker.transport.run(commands)
    # After an interruption the server may still work off requests that it was sent.
    quiet = 0
    while interrupted and quiet < QUIET_CHECKS:
        time.sleep(QUIET_S)
        quiet = 0 if acker.transport.run_one(Command(0, ("UNLINK", key))) else quiet + 1


def _print(store: Store, measured: Measured) -> None:
    rows = [
        ("HSET requests, pipelined", measured.hset_per_s, 1.0),
        ("inits", measured.init_per_s, measured.init_per_s / measured.hset_per_s),
        ("acks", measured.ack_per_s, measured.ack_vs_hset),
        ("completing acks", measured.complete_per_s, measured.complete_per_s / measured.hset_per_s),
    ]
    store.out.table(("", "per second", "to HSET"), [(name, int(rate), ratio) for name, rate, ratio in rows])
    store.out.line()
    if measured.bytes_per_root is not None:
        store.out.line(f"A pending root takes {measured.bytes_per_root:.1f} bytes, in blocks of {measured.block_size}.")
    store.out.line(f"Medians of {measured.rounds} rounds with {measured.roots_a_round:,} roots each, one client.")
