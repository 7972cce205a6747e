"""Scripts as they are called: on every store, as their headers say, on no key but those declared."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import redis

from redis_acker import new_edges
from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.retries.requests import ReplayRequests, Requested
from redis_acker.retries.withdrawals import Choice, Owner, Withdrawal, forget_lent
from redis_acker.spouts.stream_writes import Staging, StreamWrites
from redis_acker.spouts.user_streams import UserStreams, note_key
from redis_acker.store.lease import Lease
from redis_acker.store.progress import RunProgress
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.run_records import SUNK, Place, RunAbout, field_of
from redis_acker.store.scripts import script
from redis_acker.store.transport import Argument, Command
from tests.backends import Backend, Servers, make_backend
from tests.lua.conftest import OpenLedger
from tests.lua.headers import parse, scripts
from tests.lua.ledger import SPOUT, TICK_MS, Ledger
from tests.lua.test_headers import SHARD_ARGS, catalogue


def run_everything(ledger: Ledger) -> None:
    """Calls every script, with blocks large and small in every state."""
    acker = ledger.acker
    early, early_edges = acker.allocate(SPOUT, 100), new_edges(100)
    acker.ack(early[:30], early_edges[:30])
    acker.fail(early[40:42], component="parse", error="broken")
    assert acker.init(early, early_edges, message_ids=[f"{i}" for i in range(100)], echo_ids=True).completed == 30
    lone, lone_edges = ledger.start(1, "payments")
    large, large_edges = ledger.start(600, "payments", message_ids=np.arange(600), quiet=True)
    roots, edges = np.concatenate((lone, large)), np.concatenate((lone_edges, large_edges))
    assert acker.ack(roots[:300], edges[:300]).completed == 300
    assert acker.ack(roots[[302, 590]], edges[[302, 590]]).completed == 2
    assert acker.fail(roots[310:320]).failed == 10
    assert acker.ack_edges(roots[330:332], new_edges(2), edges[330:332]).completed == 2
    assert acker.edge_states(roots[330:334], edges[330:334]).tolist() == [2, 2, 0, 0]
    acker.ack(acker.allocate(SPOUT, 20), new_edges(20))
    ledger.pass_time(TICK_MS)
    acker.shards.note_histories()
    assert acker.extend(roots[400:410]) == 10
    assert len({one.root for one in acker.pending()}) == acker.pending_count() == 68 + 287
    assert acker.inspect(int(roots[400])).state == "pending"
    assert [ledger.pass_time(TICK_MS).expired for _ in range(3)] == [0, 68 + 277, 10]
    lease = Lease(acker, SPOUT)
    lease.renew()
    lease.give_up()
    work_on_portions(ledger).drop()
    drain_and_replay(ledger)
    write_a_stream(ledger)
    for spout in (SPOUT, "payments"):
        ledger.completions(spout)
        ledger.failures(spout)


def work_on_portions(ledger: Ledger) -> RunProgress:
    """Begins, keeps, ends and leaves portions of a run."""
    run = RunProgress(ledger.acker, ledger.acker.spout_number(SPOUT))
    run.start("run", RunAbout(SPOUT, ledger.clock.now_ms, "here", 1, "", ""))
    start = Place(field_of(0, 0), 0, 0)
    assert run.reach(start, run.begin(start, 100, 1), SUNK) == "kept"
    assert run.begin(Place(start.partition, 100, 1), 1000, 2).state == "new"
    left = run.leave(start.partition)
    assert left is not None
    assert len(left) == 1000
    return run


def write_a_stream(ledger: Ledger) -> None:
    """A stream of the user's, written and counted, which has nothing to do with the store."""
    target: Any = ledger.backend.target
    streams = UserStreams(target, [f"acker:{{{ledger.acker.namespace}:0}}:orders"])
    staging, writes = Staging(streams, "query", 0), StreamWrites(streams, "query")
    for number in range(450):
        staging.add(0, [(b"number", b"%d" % number), (b"", b"")])
    writes.commit(0, staging.finish())
    writes.forget()
    assert streams.count(0, "0-0", "+", 400)[0] == 400
    assert streams.count(0, "0-0", "+", 1000)[0] == 450
    streams.run_on(0, "DEL", *streams.names)
    streams.run_on(0, "DEL", note_key(streams.names[0], "attempts", "query"))


def drain_and_replay(ledger: Ledger) -> None:
    """Takes failures by hand, in part and whole, puts them back, asks for replays, also of a dead letter."""
    acker = ledger.acker
    assert list(Withdrawal(acker, Owner.here("a test"), Choice(spout=SPOUT, limit=3)).failures())
    withdrawal = Withdrawal(acker, Owner("elsewhere", 1, ""), Choice(spout=SPOUT), take_over=True)
    roots = [root for withdrawn in withdrawal.failures() for root in withdrawal.roots_of(withdrawn)]
    assert len({root.root for root in roots}) == len(roots) == 70
    requests, book = ReplayRequests(acker), RetryBook(acker, SPOUT)
    assert requests.request(roots) == Requested(noted=70, again=0)
    assert requests.request(roots) == Requested(noted=0, again=70)
    forget_lent(acker, {(root.spout, root.shard) for root in roots})
    letter = DeadLetter("dead", SPOUT, [FailedAttempt(5, "failed", "", "", 1)], False, [1])
    book.bury(letter)
    assert DeadLetters(acker).replay(letter)
    for request in book.requests():
        book.accept(request, is_news=True)
    assert len(book.load(requests=False)) == 71
    book.forget(book.load())
    keys, number = acker.shards.keys[0], acker.spout_number(SPOUT)
    assert acker.shards.transport.run_one(Command(0, ("DEL", keys.replayed(number)))) == 1
    set_aside(ledger)


def set_aside(ledger: Ledger) -> None:
    """An entry and a field that make no sense."""
    shards, number = ledger.acker.shards, ledger.acker.spout_number(SPOUT)
    shards.ask(0, "XADD", shards.keys[0].completions(number), "*", "x", "y")
    shards.ask(0, "HSET", shards.keys[0].retries(number), "x", "y")
    ledger.completions()
    assert RetryBook(ledger.acker, SPOUT).load() == {}
    quarantine = Quarantine(shards)
    assert [quarantine.remove(one) for one in quarantine] == [True, True]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Sequence[str], list[Argument]]]:
    """Name, KEYS and ARGV of every script call from here on."""
    calls: list[tuple[str, Sequence[str], list[Argument]]] = []
    make_call = Command.call

    def record(name: str, shard: int, keys: Sequence[str], args: Iterable[Argument]) -> Command:
        listed = list(args)
        calls.append((name, keys, listed))
        return make_call(name, shard, keys, listed)

    monkeypatch.setattr(Command, "call", record)
    return calls


def test_every_script_runs_on_every_store_as_its_header_says(
    called: list[tuple[str, Sequence[str], list[Argument]]], open_ledger: OpenLedger
) -> None:
    ledger = open_ledger()
    run_everything(ledger)
    headers = {name: parse(text) for name, text in scripts().items()}
    assert {name for name, _, _ in called} == set(headers)
    for name, keys, args in called:
        header = headers[name]
        if header.on_shard:
            spouts = args[2]
            assert isinstance(spouts, bytes)
            assert len(keys) == len(ledger.acker.shards.keys[0].fixed) + len(spouts), name
            assert args[:2] == [ledger.acker.settings.buckets, args[1]]
        else:
            assert len(keys) == len(header.keys), name
        documented = len(header.args) + (SHARD_ARGS if header.on_shard else 0)
        if header.repeated:
            assert (len(args) - documented) % header.repeated == 0, name
        else:
            assert len(args) == documented, name


def test_keys_are_of_the_types_that_the_headers_name(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    kinds = catalogue() | {words[0]: words[1] for text in scripts().values() for words in parse(text).keys.values()}
    kinds |= {"completions": kinds["streams"], "failures": kinds["streams"]}
    roots, edges = ledger.start(20, message_ids=[f"{i}" for i in range(20)])
    ledger.acker.ack(roots[:5], edges[:5])
    ledger.acker.fail(roots[5])
    ledger.start_one()
    ledger.acker.ack(*ledger.start(1))
    Lease(ledger.acker, SPOUT).renew()
    run = work_on_portions(ledger)
    client: Any = ledger.backend.client()
    found = {key.decode().partition("}:")[2].partition(":")[0]: client.type(key).decode() for key in all_keys(ledger)}
    assert found == {name: kinds[name] for name in found}
    assert {"heads", "vals", "ids", "finished", "completions", "failures", "sequences", "spouts"} <= set(found)
    assert "progress" in found
    run.drop()
    client.delete(ledger.acker.shards.keys[0].lease(ledger.acker.spout_number(SPOUT)))


def all_keys(ledger: Ledger) -> list[bytes]:
    return ledger.backend.keys(ledger.acker.namespace)


# -- declared keys -------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(servers: Servers, namespace: str) -> Iterator[Backend]:
    found = make_backend("redis-7.0", servers)
    yield found
    found.delete_keys(namespace)


def test_a_script_touches_no_key_that_is_not_declared(watched: Backend, namespace: str) -> None:
    """The server reports every command that a script runs; a cluster needs all keys of a call to be known before."""
    client = watched.client()
    assert isinstance(client, redis.Redis)
    spelt = re.compile(rf"acker:\{{{namespace}:\d+\}}:[\w:]+")
    touched: dict[str, set[str]] = {}
    names = {script(name).sha: name for name in scripts()}
    with client.monitor() as monitor:
        ledger = Ledger(watched, namespace)
        run_everything(ledger)
        client.echo("the end")
        name, declared = "", set[str]()
        for line in monitor.listen():
            command: str = line["command"]
            if command == "ECHO the end":
                break
            if line["client_type"] != "lua":
                sha = command.split()[1] if command.startswith("EVALSHA ") else ""
                name, declared = names.get(sha, ""), set(spelt.findall(command))
            else:
                keys = set(spelt.findall(command))
                assert keys <= declared, f"{name}: {command}"
                touched[name] = touched.get(name, set()) | keys
    assert {name for name, keys in touched.items() if keys} == set(names.values())
    ledger.close()
