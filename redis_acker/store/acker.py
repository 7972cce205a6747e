"""The ledger of roots: what a program calls to initialise, ack, fail, extend and look at them."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redis_acker.clock import SYSTEM_CLOCK, Clock
from redis_acker.errors import AckerError, BadInput, TooLate
from redis_acker.store.batches import (
    ack_batches,
    check_init,
    distinct,
    extend_batches,
    fold,
    init_batches,
    root_batches,
)
from redis_acker.store.connect import Target, open_servers, other_urls
from redis_acker.store.edges import ack_deliveries, delivery_states
from redis_acker.store.event_reader import CLAIM_AFTER_MS, EventReader
from redis_acker.store.ids import Ids, Sessions, Token, U64Array, as_pairs, as_u64, make_roots
from redis_acker.store.keys import check_namespace, key_prefix
from redis_acker.store.message_ids import MessageIds, check_attempts, check_message_ids
from redis_acker.store.namespace import Settings, open_namespace
from redis_acker.store.pending import PendingRoot, RootState, inspect, list_pending
from redis_acker.store.spouts import Spouts
from redis_acker.store.stats import Acks, Fails, Inits, Stats, read_stats
from redis_acker.store.streams import Cause, Completion, Failure
from redis_acker.store.transport import Transport
from redis_acker.store.urls import hide_password

DEFAULT_NAMESPACE = "default"

RETRY_FOR_S = 10.0
"""How long a call keeps trying to reach the server, though never longer than half the timeout of roots: a repeated init
is recognised for at least one timeout."""


class Acker:
    """A namespace of roots on Redis.

    Every call may be repeated within the timeout of its roots, and takes effect once. Threads and forked processes may
    share an Acker; a pickled one opens new connections where it is unpickled.
    """

    clock: Clock = SYSTEM_CLOCK
    """The clock by which everything waits that works with it: rotators, drivers, runners."""

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
        executor_url: str | Sequence[str] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Opens the namespace. An argument that is None takes the stored setting, or the default in a new namespace.

        create=False refuses a namespace that does not exist. executor_url: with which pickled copies, as in Spark's
        executors, reach the same servers; for a user with fewer rights. For tests, clock replaces the server's clock
        with ms since 1970.
        """
        self.namespace = check_namespace(namespace)
        if isinstance(retry_for_s, bool) or not isinstance(retry_for_s, (int, float)) or retry_for_s < 0:
            raise BadInput(f"retry_for_s must be a number of seconds, 0 or more, not {retry_for_s!r}.")
        self._wanted = Settings(shards, buckets, timeout_ms, block_size, ack_restarts_clock)
        self._create, self._retry_for_s, self._clock = create, retry_for_s, clock
        self._connect(url)
        self._executor_urls = None if executor_url is None else other_urls(executor_url, self.servers)

    def _connect(self, url: Target | Sequence[Target] | None) -> None:
        self.servers = open_servers(url, partial(key_prefix, self.namespace))
        """Which server holds which shard."""
        transport, clock = self._new_transport(), self._clock
        try:
            self.shards = open_namespace(
                self.servers, transport, self.namespace, self._wanted, create=self._create, clock=clock
            )
        except BaseException:
            self.servers.close()
            raise
        self.settings = self.shards.settings
        self._sessions = Sessions()
        self._spouts = Spouts(self.shards, self.servers, self.namespace)

    def _new_transport(self) -> Transport:
        return Transport(self.servers, retry_for_s=self._retry_for_s)

    # -- roots ---------------------------------------------------------------------------------------------------

    def allocate(self, spout: str, count: int = 1) -> U64Array:
        """New roots of a spout, in as few blocks as possible. They are not pending before init."""
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 1 << 32:
            raise BadInput(f"count must be a whole number of roots from 0 to 2**32, not {count!r}.")
        number = self.spout_number(spout)
        blocks = -(-count // self.settings.block_size)
        if blocks == 0:
            return make_roots(number, 0, 0, self.settings.block_size)
        first = self._spouts.again_if_lost(lambda: self.shards.allocate(spout, number, blocks))
        return make_roots(number, first, count, self.settings.block_size)

    def init(
        self,
        roots: Ids,
        ack_vals: Ids,
        *,
        message_ids: MessageIds | None = None,
        attempts: int | Sequence[int] = 1,
        quiet: bool = False,
        echo_ids: bool = False,
        until_ms: int | None = None,
    ) -> Inits:
        """Makes roots pending, each with the XOR of the edges its spout sent. Takes whole blocks, as allocated.

        message_ids and attempts come back with a failure, and with echo_ids=True also with a completion. quiet=True
        writes no completions to the stream, for spouts that only care about failures. An init that reaches the server
        after until_ms, by its clock, raises TooLate: by then another may have made the same roots pending, and finished
        them. Without until_ms that is 3/4 of the timeout after this call: no copy of an init that is still on its way
        somewhere makes roots pending that were finished and forgotten.
        """
        root_array, val_array = as_pairs(roots, ack_vals)
        check_init(root_array, val_array, self.settings.block_size)
        count = len(root_array)
        ids = None if message_ids is None else check_message_ids(message_ids, count)
        tries = check_attempts(attempts, count)

        def send(since_s: float | None = None) -> list[list[int]]:
            batches = init_batches(root_array, val_array, self.settings.shards, ids, tries)
            return self.shards.init(batches, quiet=quiet, echo=echo_ids, until_ms=until_ms, since_s=since_s)

        start_s = self.shards.clocks.now_s()
        try:
            replies = self._spouts.again_if_lost(send)
        except TooLate:
            if until_ms is not None or not self.shards.clocks.have_changed():
                raise
            replies = self._spouts.again_if_lost(partial(send, start_s))
        return Inits(*_sums(replies, 4))

    def ack(self, roots: Ids, ack_vals: Ids, *, token: Token | str | bytes | None = None) -> Acks:
        """XORs ack vals into the roots: for each tuple, its edge and the edges of its children.

        A token names the batch: what was applied under a token is not applied again. Pass one when another process
        may send the same batch again; the batch must then be, for every block it touches, everything under that
        token. Without a token, only the retries inside this call are recognised.
        """
        root_array, val_array = fold(*as_pairs(roots, ack_vals))
        if not val_array.all():  # an ack val of zero changes nothing
            root_array, val_array = root_array[val_array != 0], val_array[val_array != 0]
        known = token if isinstance(token, Token) else self._sessions.next() if token is None else Token.of(token)
        restart = self.settings.ack_restarts_clock
        batches = ack_batches(root_array, val_array, self.settings.shards, self.settings.block_size, restart=restart)
        try:
            replies = self.shards.ack(batches, known.packed(), restart=restart)
        except AckerError as error:
            error.token = known
            self._sessions.renew()
            raise
        return Acks(*_sums(replies, 4))

    def ack_edges(self, roots: Ids, edges: Ids, ack_vals: Ids | None = None) -> Acks:
        """Acks deliveries by their edges, each once: one that was acked so before, by any program and in any batch, is
        recognised for as long as its root is pending. For what a transport may deliver again.

        ack_vals: for each delivery its edge and those of what was sent on of it; by default its edge alone.
        """
        pairs = as_pairs(roots, edges)
        vals = None if ack_vals is None else as_pairs(roots, ack_vals)[1]
        return ack_deliveries(self.shards, *pairs, vals)

    def edge_states(self, roots: Ids, edges: Ids) -> NDArray[np.uint8]:
        """For each delivery an EdgeState: whether it is still to be worked on, was acked with ack_edges(), or is of a
        tree that is over. A root that the store does not know is over too: nobody waits for it."""
        return delivery_states(self.shards, *as_pairs(roots, edges))

    def fail(self, roots: Ids, *, component: str = "", error: str = "", fatal: bool = False) -> Fails:
        """Fails roots at once, whatever their ack val. fatal=True means that a replay would fail again."""
        return self.fail_all([(roots, Cause(component, error, fatal))])

    def fail_all(self, fails: Iterable[tuple[Ids, Cause]]) -> Fails:
        """Fails roots for different causes. As so many calls of fail(), but none waits for the one before."""
        shape = self.settings.shards, self.settings.block_size
        parts = [
            (root_batches(distinct(roots), *shape), *cause.texts(), cause.fatal, cause.reason) for roots, cause in fails
        ]
        return Fails(*_sums(self.shards.fail(parts), 3))

    def extend(self, roots: Ids) -> int:
        """Restarts the clock of pending roots. Returns how many were pending."""
        shape = self.settings.shards, self.settings.block_size
        return sum(self.shards.extend(extend_batches(distinct(roots), *shape)))

    # -- final events --------------------------------------------------------------------------------------------

    def completions(
        self, spout: str, *, consumer: str | None = None, claim_after_ms: int = CLAIM_AFTER_MS
    ) -> EventReader[Completion]:
        """Reads what is complete. A consumer that comes back under its old name gets what it held."""
        return EventReader(self, spout, "completions", consumer=consumer, claim_after_ms=claim_after_ms)

    def failures(
        self, spout: str, *, consumer: str | None = None, claim_after_ms: int = CLAIM_AFTER_MS
    ) -> EventReader[Failure]:
        """Reads what failed, with everything that a replay needs."""
        return EventReader(self, spout, "failures", consumer=consumer, claim_after_ms=claim_after_ms)

    # -- looking -------------------------------------------------------------------------------------------------

    def pending_count(self, spout: str | None = None) -> int:
        """How many roots are pending, from counters: as cheap with ten million roots as with one."""
        stats = self.stats()
        return sum(one.pending for one in stats.spouts if spout in (None, one.name))

    def stats(self) -> Stats:
        """The counters of the namespace, by spout and by shard."""
        return read_stats(self.shards)

    def inspect(self, root: int) -> RootState:
        """Everything that is known about one root."""
        found = as_u64(root, "root")
        if len(found) != 1:
            raise BadInput(f"inspect takes one root, not {reprlib.repr(root)}: call it for each.")
        return inspect(self, int(found[0]))

    def pending(
        self, *, spout: str | None = None, shard: int | None = None, older_than_ms: int = 0
    ) -> Iterator[PendingRoot]:
        """Lists pending roots, oldest bucket first, a page at a time."""
        return list_pending(self, spout=spout, shard=shard, older_than_ms=older_than_ms)

    # -- the rest ------------------------------------------------------------------------------------------------

    @property
    def urls(self) -> list[str]:
        """URLs for other processes to reach the same servers, passwords included."""
        return list(self.servers.urls)

    def spout_number(self, name: str) -> int:
        """The number of a spout, assigned at first use."""
        return self._spouts.number(name)

    def spout_names(self) -> dict[int, str]:
        """The spouts of this namespace, by number."""
        return self.shards.spouts()

    def known_spouts(self, only: str | None = None) -> dict[str, int]:
        """The numbers of all spouts, or of one. Raises UnknownSpout where there is none of that name."""
        return self._spouts.known(only)

    def close(self) -> None:
        """Closes the connections, and stops the server if it is embedded."""
        self.servers.close()

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
            "urls": self._executor_urls or self.urls,
            "namespace": self.namespace,
            "wanted": self.settings.as_wanted(),
            "retry_for_s": self._retry_for_s,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.namespace, self._wanted = state["namespace"], state["wanted"]
        self._create, self._retry_for_s, self._clock, self._executor_urls = False, state["retry_for_s"], None, None
        self._connect(state["urls"])


def _sums(replies: list[list[int]], width: int) -> list[int]:
    return [sum(reply[i] for reply in replies) for i in range(width)]
