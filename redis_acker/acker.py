"""The ledger of roots: what a program calls to initialise, ack, fail, extend and look at them."""

from __future__ import annotations

import logging
import os
import reprlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from redis_acker import views
from redis_acker.batches import Batch, ack_batches, fold, init_batches, root_batches
from redis_acker.connect import Servers, Target, hide_password, open_servers
from redis_acker.errors import AckerError, BadInput, StoreLost
from redis_acker.ids import Ids, U64Array, as_u64, indexes_of, make_roots
from redis_acker.keys import ShardKeys
from redis_acker.message_ids import MessageIds, check_attempts, check_message_ids, pack_ids
from redis_acker.namespace import open_namespace, spout_names, spout_number
from redis_acker.outcomes import Completion, Failure
from redis_acker.settings import Settings, check_namespace
from redis_acker.streams import CLAIM_AFTER_MS, OutcomeReader
from redis_acker.tokens import Sessions, Token
from redis_acker.transport import Argument, Command, Transport

DEFAULT_NAMESPACE = "default"

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_FOR_S = 10.0
"""How long a call goes on trying to reach the server. Never longer than half the timeout of roots: a repeated init is
recognised for at least the whole of it."""

MAX_COMPONENT_BYTES = 255
MAX_ERROR_BYTES = 2000
"""Longer texts are cut: they explain a failure to a person."""


@dataclass(frozen=True)
class Inits:
    """What an init did, in roots."""

    initialised: int
    completed: int
    """Done at once, by acks that came before."""
    failed: int
    """Failed at once, by fails that came before."""
    duplicates: int
    """Initialised before, and left alone."""


@dataclass(frozen=True)
class Acks:
    """What a batch of acks did: ack vals, and roots for completed."""

    applied: int
    completed: int
    late: int
    """For roots that were finished, or never existed."""
    duplicates: int
    """Recognised by their token as applied before."""


@dataclass(frozen=True)
class Fails:
    """What a fail did, in roots."""

    failed: int
    kept: int
    """Not initialised yet: fails when the init comes."""
    late: int


class Acker:
    """A namespace of roots on Redis.

    Every call may be repeated within the timeout of its roots: it takes effect once. Threads may share an Acker, forked
    processes too, and a pickled one connects anew where it arrives.
    """

    def __init__(
        self,
        url: Target | Sequence[Target] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        shards: int | None = None,
        buckets: int | None = None,
        timeout_ms: int | None = None,
        block_size: int | None = None,
        ack_restarts_clock: bool | None = None,
        create: bool = True,
        retry_for_s: float = RETRY_FOR_S,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Opens the namespace, with stored settings where an argument is None.

        create=False refuses a namespace that does not exist. clock gives ms since 1970 in place of the server's
        clock, for tests.
        """
        self.namespace = check_namespace(namespace)
        if isinstance(retry_for_s, bool) or not isinstance(retry_for_s, (int, float)) or retry_for_s < 0:
            raise BadInput(f"retry_for_s must be a number of seconds from 0 on, not {retry_for_s!r}.")
        self._wanted = Settings(shards, buckets, timeout_ms, block_size, ack_restarts_clock)
        self._create, self._retry_for_s, self._clock = create, retry_for_s, clock
        self._connect(url)

    def _connect(self, url: Target | Sequence[Target] | None) -> None:
        self._servers = open_servers(url, lambda shard: ShardKeys(self.namespace, shard, 0).prefix)
        self.transport = Transport(self._servers, retry_for_s=self._retry_for_s)
        try:
            self.settings = open_namespace(
                self._servers, self.transport, self.namespace, self._wanted, create=self._create, now_ms=self._now()
            )
        except BaseException:
            self._servers.close()
            raise
        self.transport = Transport(self._servers, retry_for_s=min(self._retry_for_s, self.settings.timeout_ms / 2000))
        buckets = self.settings.buckets
        self.shard_keys = [ShardKeys(self.namespace, shard, buckets) for shard in range(self.settings.shards)]
        self._sessions = Sessions()
        self._spouts: dict[str, int] = {}

    # -- roots ---------------------------------------------------------------------------------------------------

    def allocate(self, spout: str, count: int = 1) -> U64Array:
        """New roots of a spout, in as few blocks as they fit. Only init makes them pending."""
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 1 << 32:
            raise BadInput(f"count must be a whole number of roots from 0 to 2**32, not {count!r}.")
        number = self.spout_number(spout)
        blocks = -(-count // self.settings.block_size)
        if blocks == 0:
            return make_roots(number, 0, 0, self.settings.block_size)
        keys, now = self.shard_keys[0], self._now()
        command = Command.call("allocate", 0, [keys.sequences, keys.spouts], [spout, number, blocks, now])
        first = self._again_if_lost(lambda: self.transport.run_one(command))
        return make_roots(number, int(first), count, self.settings.block_size)

    def init(
        self,
        roots: Ids,
        ack_vals: Ids,
        *,
        message_ids: MessageIds | None = None,
        attempts: int | Sequence[int] = 1,
        quiet: bool = False,
        echo_ids: bool = False,
    ) -> Inits:
        """Makes roots pending, each with the XOR of the edges its spout sent. Takes whole blocks, as allocated.

        message_ids and attempts come back with a failure; with echo_ids also with a completion. quiet keeps
        completions out of the stream, for spouts that only care about failures.
        """
        root_array, val_array = self._pairs(roots, ack_vals)
        if not val_array.all():
            raise BadInput("An init with ack val 0 would be complete at once: zero is no edge id, draw new_edges().")
        if len(root_array) > 1 and not bool((root_array[1:] > root_array[:-1]).all()):
            raise BadInput("init takes each root once, in ascending order, as allocate() gave them.")
        _check_whole_blocks(root_array, self.settings.block_size)
        count = len(root_array)
        ids = None if message_ids is None else check_message_ids(message_ids, count)
        tries = check_attempts(attempts, count)

        def pack_ids_of(part: slice) -> bytes:
            return pack_ids(None if ids is None else ids[part], tries if isinstance(tries, int) else tries[part])

        def send() -> list[Any]:
            batches = init_batches(root_array, val_array, self.settings.shards, pack_ids_of)
            return self._run("init", batches, lambda batch: [int(quiet), int(echo_ids), *batch.dense])

        return Inits(*_sums(self._again_if_lost(send), 4))

    def ack(self, roots: Ids, ack_vals: Ids, *, token: Token | str | bytes | None = None) -> Acks:
        """XORs ack vals into the roots: for each tuple its edge and the edges of its children.

        A token names the batch: sent again under the same token, the whole or any part of it that was applied is
        left alone. Give one when a batch may be sent again by another process; it must then be, for every block
        it touches, all there is under that token. Without one, this call alone is safe to be retried inside.
        """
        root_array, val_array = fold(*self._pairs(roots, ack_vals))
        if not val_array.all():  # an ack val of zero says nothing
            root_array, val_array = root_array[val_array != 0], val_array[val_array != 0]
        known = token if isinstance(token, Token) else self._sessions.next() if token is None else Token.of(token)
        restart = int(self.settings.ack_restarts_clock)
        batches = ack_batches(
            root_array, val_array, self.settings.shards, self.settings.block_size, restart=bool(restart)
        )
        try:
            replies = self._run(
                "ack", batches, lambda batch: [known.packed(), restart, b"".join(batch.sparse), *batch.dense]
            )
        except AckerError as error:
            error.token = known
            self._sessions.renew()
            raise
        return Acks(*_sums(replies, 4))

    def fail(self, roots: Ids, *, component: str = "", error: str = "", fatal: bool = False) -> Fails:
        """Fails roots at once, whatever their ack val. fatal says that a replay would fail again."""
        texts: list[Argument] = [
            _cut(component, "component", MAX_COMPONENT_BYTES),
            _cut(error, "error", MAX_ERROR_BYTES),
            int(fatal),
        ]
        replies = self._run("fail", self._named(roots), lambda batch: [*texts, b"".join(batch.sparse)])
        return Fails(*_sums(replies, 3))

    def extend(self, roots: Ids) -> int:
        """Restarts the clock of pending roots. Returns how many were pending."""
        return sum(self._run("extend", self._named(roots), lambda batch: [b"".join(batch.sparse)]))

    # -- final events --------------------------------------------------------------------------------------------

    def completions(
        self, spout: str, *, consumer: str | None = None, claim_after_ms: int = CLAIM_AFTER_MS
    ) -> OutcomeReader[Completion]:
        """Reads what is complete. consumer: a name that is the same after a restart gets back what it held."""
        return OutcomeReader(
            self, "completions", spout, consumer=consumer or _random_consumer(), claim_after_ms=claim_after_ms
        )

    def failures(
        self, spout: str, *, consumer: str | None = None, claim_after_ms: int = CLAIM_AFTER_MS
    ) -> OutcomeReader[Failure]:
        """Reads what failed, with all that a replay needs."""
        return OutcomeReader(
            self, "failures", spout, consumer=consumer or _random_consumer(), claim_after_ms=claim_after_ms
        )

    # -- looking -------------------------------------------------------------------------------------------------

    def pending_count(self, spout: str | None = None) -> int:
        """How many roots are pending, from counters: the same work with one root or ten million."""
        stats = self.stats()
        return sum(one.pending for one in stats.spouts if spout in (None, one.name))

    def stats(self) -> views.Stats:
        """The counters of the namespace, by spout and by shard."""
        return views.read_stats(self)

    def inspect(self, root: int) -> views.RootState:
        """All that is known of one root."""
        found = as_u64(root, "root")
        if len(found) != 1:
            raise BadInput(f"inspect looks at one root, not at {reprlib.repr(root)}: call it for each.")
        return views.inspect(self, int(found[0]))

    def pending(
        self, *, spout: str | None = None, shard: int | None = None, older_than_ms: int = 0
    ) -> Iterator[views.PendingRoot]:
        """Lists pending roots, oldest bucket first, a page at a time."""
        return views.list_pending(self, spout=spout, shard=shard, older_than_ms=older_than_ms)

    # -- the rest ------------------------------------------------------------------------------------------------

    @property
    def urls(self) -> list[str]:
        """How other processes reach the same servers, passwords included."""
        return list(self._servers.urls)

    @property
    def servers(self) -> Servers:
        """Which server holds which shard."""
        return self._servers

    def spout_number(self, name: str) -> int:
        if name not in self._spouts:
            self._spouts[name] = spout_number(self.transport, self.namespace, name)
        return self._spouts[name]

    def spout_names(self) -> dict[int, str]:
        return spout_names(self.transport, self.namespace)

    def close(self) -> None:
        """Closes the connections, and ends the server if it is an embedded one."""
        self._servers.close()

    def __enter__(self) -> Acker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Acker({', '.join(map(hide_password, self.urls))}, namespace={self.namespace!r})"

    def __getstate__(self) -> dict[str, Any]:
        if not self.urls:
            raise BadInput("An Acker on client objects cannot be pickled: open it with a URL.")
        return {
            "urls": self.urls,
            "namespace": self.namespace,
            "wanted": self.settings.as_wanted(),
            "retry_for_s": self._retry_for_s,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.namespace, self._wanted = state["namespace"], state["wanted"]
        self._create, self._retry_for_s, self._clock = False, state["retry_for_s"], None
        self._connect(state["urls"])

    def block_command(self, name: str, shard: int, spouts: Sequence[int], args: Sequence[Argument]) -> Command:
        """A call of a script that works on blocks; lua/lib/shard.lua lists what comes first."""
        packed = b"".join(spout.to_bytes(2, "big") for spout in spouts)
        keys = self.shard_keys[shard].with_streams(spouts)
        return Command.call(name, shard, keys, [self.settings.buckets, self._now(), packed, *args])

    def _run(self, name: str, batches: Iterator[Batch], args_of: Callable[[Batch], list[Argument]]) -> list[Any]:
        commands = (self.block_command(name, batch.shard, sorted(batch.spouts), args_of(batch)) for batch in batches)
        return self.transport.run(commands)

    def _again_if_lost(self, send: Callable[[], T]) -> T:
        """Sends. If the server has lost its data, stores the settings and the spouts again first."""
        try:
            return send()
        except StoreLost as error:
            log.error("%s What was pending there is forgotten.", error)
        wanted = self.settings.as_wanted()
        open_namespace(self._servers, self.transport, self.namespace, wanted, create=True, now_ms=self._now())
        known, self._spouts = self._spouts, {}
        for name, number in known.items():
            if self.spout_number(name) != number:
                raise StoreLost(f"The server has lost its data, and spout {name!r} has a new number: open a new Acker.")
        return send()

    def _now(self) -> Argument:
        return "" if self._clock is None else self._clock()

    def _named(self, roots: Ids) -> Iterator[Batch]:
        root_array = as_u64(roots, "roots")
        distinct, _ = fold(root_array, root_array)
        return root_batches(distinct, self.settings.shards, self.settings.block_size)

    def _pairs(self, roots: Ids, ack_vals: Ids) -> tuple[U64Array, U64Array]:
        root_array, val_array = as_u64(roots, "roots"), as_u64(ack_vals, "ack_vals")
        if len(root_array) != len(val_array):
            raise BadInput(
                f"roots and ack_vals must be of the same length: {len(root_array)} roots, {len(val_array)} ack vals."
            )
        return root_array, val_array


def _check_whole_blocks(roots: U64Array, block_size: int) -> None:
    """Roots of a block start at index 0 and leave none out: the block is initialised as a whole."""
    indexes = indexes_of(roots)
    if len(roots) == 0:
        return
    follows = (roots[1:] == roots[:-1] + np.uint64(1)) & (indexes[1:] != 0)
    begins = np.concatenate(([True], ~follows))
    if not bool((indexes[begins] == 0).all()):
        first = int(roots[begins][np.flatnonzero(indexes[begins])[0]])
        raise BadInput(
            f"init takes whole blocks as allocate() gave them, and the block of root {first} is not whole: pass all of "
            "its roots in one call."
        )
    if int(indexes.max()) >= block_size:
        raise BadInput(f"Root {int(roots[indexes.argmax()])} is outside a block of {block_size} roots: use allocate().")


def _cut(text: str, name: str, most_bytes: int) -> bytes:
    if not isinstance(text, str):
        raise BadInput(f"{name} must be a text, not {reprlib.repr(text)}: pass str() of it.")
    # Between two characters: half of one could not be decoded again.
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore").encode()


def _sums(replies: list[list[int]], width: int) -> list[int]:
    return [sum(reply[i] for reply in replies) for i in range(width)]


def _random_consumer() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
