"""A store that is away for a while, loses replies, or loses what it was told."""

import threading
from collections.abc import Callable

import pytest

from redis_acker.errors import ServerUnavailable, StoreLost
from spark_integration.errors import RunReplaced
from spark_integration.runs import keeping
from tests.backends import Keeper, Servers
from tests.clock import Clock
from tests.proxy import CuttingProxy
from tests.servers import Server, start_server
from tests.spark.frames.tasks import Attempt, Died, MakeRun, Refused, Run, batches_of, expire
from tests.waiting import wait_until

COUNTS = 20, 20
ROWS = range(sum(COUNTS))
TIMEOUT_MS = 30_000


@pytest.fixture
def server(keeper: Keeper) -> Server:
    """A server that loses nothing when it is killed."""
    return keeper.keep(start_server("redis-7.0", "--appendonly", "yes", "--appendfsync", "always"))


def at_row(number: int, action: Callable[[], None]) -> Callable[[int], None]:
    """Does something in the sink, before it takes a row for the first time."""
    left = [action]

    def act(one: int) -> None:
        if one == number and left:
            left.pop()()

    return act


@pytest.mark.parametrize("away_ms", [1000, 2 * TIMEOUT_MS])
def test_the_store_is_away_for_a_while(make_run: MakeRun, server: Server, away_ms: int) -> None:
    """What was sunk meanwhile is not sunk again, also if its roots may be over by the time that the store is back."""
    clock = Clock()
    run = make_run(url=server.url, retry_for_s=0.05, clock=clock, timeout_ms=TIMEOUT_MS)
    one = run.attempt(act=at_row(5, server.kill))
    thread = one.start(batches_of(*COUNTS))
    wait_until(lambda: one.wire.unanswered >= 2)
    assert run.rows_sunk() == dict.fromkeys(range(20), 1)

    clock.advance(away_ms)
    server.restart()
    thread.join()

    one.done()
    assert set(run.begun.values()) == {1}
    expire(run, clock)
    run.check_roots()
    assert run.outcomes()[0] == dict.fromkeys(ROWS, 1)
    assert run.outcomes()[1] == ({} if away_ms < TIMEOUT_MS // 2 else dict.fromkeys(range(20), 1))


@pytest.mark.parametrize("call", ["begin_portion", "init", "keep_portion", "fail", "ack"])
def test_the_store_goes_away_before_a_call(make_run: MakeRun, server: Server, call: str) -> None:
    def refuse(number: int) -> None:
        if number == 7:
            raise ValueError("not this one")

    run = make_run(url=server.url, retry_for_s=0.05)
    one = run.attempt(act=refuse)
    killed: list[str] = []

    def kill(name: str) -> None:
        if name == call and not killed:
            killed.append(name)
            server.kill()

    one.wire.before = kill
    thread = one.start(batches_of(*COUNTS))
    wait_until(lambda: one.wire.unanswered >= 1)
    server.restart()
    thread.join()

    one.done()
    run.check(ROWS, {7})
    assert set(run.begun.values()) == {1}


def test_a_store_that_hangs_is_waited_for(make_run: MakeRun, server: Server) -> None:
    run = make_run(url=server.url)
    asked = threading.Event()
    one = run.attempt(act=at_row(5, server.pause))
    one.wire.before = lambda name: asked.set() if name == "ack" or run.sunk else None
    thread = one.start(batches_of(*COUNTS))
    assert asked.wait(60)

    server.resume()
    thread.join()

    one.done()
    run.check(ROWS)
    assert set(run.begun.values()) == {1}


def test_a_store_that_does_not_come_back_ends_the_task(
    make_run: MakeRun, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "STORE_AWAY_S", 0.2)
    run = make_run(url=server.url, retry_for_s=0.05)

    one = run.attempt(act=at_row(5, server.kill))(batches_of(*COUNTS))

    assert isinstance(one.error, ServerUnavailable)
    assert set(run.begun.values()) == {1}


def test_every_reply_is_lost_once(make_run: MakeRun, servers: Servers) -> None:
    """One after the other, in runs of their own."""
    server = servers.get("redis-7.0")
    assert isinstance(server, Server)
    with CuttingProxy("127.0.0.1", server.port) as proxy:
        calls = len(make_run(url=proxy.url).attempt()(batches_of(*COUNTS)).done().wire.calls)
        for number in range(calls):
            run = make_run(url=proxy.url)
            one = run.attempt()
            proxy.cut_replies(after=number, command=b"EVALSHA")
            before = proxy.cuts
            one(batches_of(*COUNTS)).done()

            assert proxy.cuts == before + 1
            run.check(ROWS)
            assert set(run.begun.values()) == {1}


# -- a store that has forgotten ------------------------------------------------------------------------------------


def lose_inits(run: Run) -> None:
    """As a server that falls back on a replica which has not got the init."""
    client = run.acker.servers.client(0)
    for part in ("heads", "vals", "ids"):
        for key in client.scan_iter(f"*{run.acker.namespace}:*{part}*"):
            client.delete(key)


def test_a_lost_init_is_sent_again(make_run: MakeRun) -> None:
    run = make_run()

    run.attempt(act=at_row(5, lambda: lose_inits(run)))(batches_of(*COUNTS)).done()

    completed, failed = run.outcomes()
    assert (completed, failed) == (dict.fromkeys(ROWS, 1), {})
    assert set(run.begun.values()) == {1}
    run.check_roots()


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_an_attempt_dies_when_it_sends_a_lost_init_again(make_run: MakeRun, when: str) -> None:
    """The next one finds that the ack was sent, and still sends the init."""
    run = make_run()
    first = run.attempt("first", act=at_row(5, lambda: lose_inits(run)))
    first.wire.dies_at = 5, when
    assert isinstance(first(batches_of(*COUNTS)).error, Died)
    assert first.wire.calls == ["begin_portion", "init", "keep_portion", "keep_portion", "ack"]

    run.attempt("second")(batches_of(*COUNTS)).done()

    assert run.outcomes() == (dict.fromkeys(ROWS, 1), {})
    run.check_roots()


def test_the_reply_is_lost_by_which_a_lost_init_is_noticed(make_run: MakeRun, servers: Servers) -> None:
    server = servers.get("redis-7.0")
    assert isinstance(server, Server)
    with CuttingProxy("127.0.0.1", server.port) as proxy:
        run = make_run(url=proxy.url)
        one = run.attempt(act=at_row(5, lambda: lose_inits(run)))
        cut = at_call(one, "ack", lambda: proxy.cut_replies(command=b"EVALSHA"))
        one(batches_of(*COUNTS)).done()

        assert (cut, proxy.cuts) == (["ack"], 1)
        assert run.outcomes() == (dict.fromkeys(ROWS, 1), {})
        run.check_roots()


def test_a_lost_init_of_a_slow_sink_is_sent_again(make_run: MakeRun) -> None:
    """So slow that the init came too late, if it were that of an attempt which slept."""
    run = make_run(timeout_ms=600)

    def lose() -> None:
        lose_inits(run)
        kept = one.wire.calls.count("keep_portion")
        wait_until(lambda: one.wire.calls.count("keep_portion") >= kept + 4)

    one = run.attempt(act=at_row(5, lose))
    one(batches_of(*COUNTS)).done()

    assert run.outcomes() == (dict.fromkeys(ROWS, 1), {})
    run.check_roots()


def test_a_message_is_not_complete_though_its_failure_was_lost(make_run: MakeRun) -> None:
    """It times out instead."""
    run = make_run()

    def refuse() -> None:
        raise Refused

    one = run.attempt(act=at_row(5, refuse))
    one.acker.fail = lambda *args, **options: None  # type: ignore[assignment,method-assign]
    one(batches_of(*COUNTS)).done()

    assert run.outcomes() == (dict.fromkeys(set(ROWS) - {5}, 1), {})
    assert run.pending() == 1


def test_a_store_that_lost_the_last_portions_says_so(make_run: MakeRun) -> None:
    """The task ends, and its next attempt does again what the store does not know."""
    run = make_run()
    progress = run.acker.shards.progress(run.spout)
    before = progress.get("0:0")

    def lose() -> None:
        if before is None:
            progress.remove(["0:0"])

    first = run.attempt("first", act=at_row(25, lose))(batches_of(*COUNTS))
    assert isinstance(first.error, StoreLost)
    assert "it knows of 0 finished rows, and this task has finished 20" in str(first.error)

    run.attempt("second")(batches_of(*COUNTS)).done()

    assert run.outcomes()[0].keys() == set(ROWS)
    run.check_roots()


def test_a_store_that_lost_everything_ends_the_run(make_run: MakeRun, keeper: Keeper) -> None:
    server = keeper.keep(start_server("redis-7.0"))
    run = make_run(url=server.url)

    one = run.attempt(act=at_row(25, server.restart))(batches_of(*COUNTS))

    assert isinstance(one.error, RunReplaced)


def at_call(attempt: Attempt, call: str, action: Callable[[], None]) -> list[str]:
    """Does something before the first call of a script. Returns a list in which that is noted."""
    done: list[str] = []

    def before(name: str) -> None:
        if name == call and not done:
            done.append(name)
            action()

    attempt.wire.before = before
    return done
