"""A server that loses its last writes while a job with a shuffle runs, or another that takes its place."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row

from redis_acker import Acker, DeadLetters, RetryPolicy, Rotator
from redis_acker.errors import StoreLost
from redis_acker.retries.book import RetryBook
from redis_acker.store.streams import Cause
from spark_integration import TrackedFrame, track
from spark_integration.runs import watch
from spark_integration.runs.failing import ServerLives
from tests.backends import Keeper
from tests.sentinels import SERVICE, start_sentinel
from tests.servers import HOST, Server, start_server
from tests.spark.frames.books import books
from tests.spark.frames.partitions import Job, batches_of, tasks_here
from tests.spark.frames.tasks import key_of
from tests.waiting import wait_until

SCHEMA = "id string, number long"
RESTARTED = "The server of shard 0 was restarted, or replaced by another, while the job ran"


class Aof:
    """The file from which a server restores its data. What was written to it last can be lost."""

    def __init__(self, server: Server) -> None:
        self._server = server
        [self._file] = Path(server.directory).glob("appendonlydir/*.incr.aof")
        self.mark()

    def mark(self) -> None:
        """Everything up to here will survive."""
        self._size = self._file.stat().st_size

    def lose(self) -> None:
        """The machine goes down and comes back, without what was written since the mark."""
        self._server.kill()
        os.truncate(self._file, self._size)
        self._server.restart()


@pytest.fixture
def server(keeper: Keeper) -> Server:
    args = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
    return keeper.keep(start_server("redis-7.0", *args))


@pytest.fixture
def acker(server: Server, namespace: str) -> Iterator[Acker]:
    with Acker(server.url, namespace=namespace) as acker:
        yield acker


@pytest.fixture
def tracked(acker: Acker, numbers: Callable[[int], DataFrame]) -> TrackedFrame:
    policy = RetryPolicy(max_attempts=3, first_ms=0)
    return track(numbers(10), acker=acker, spout="numbers", message_id="id", retries=policy, stable_source=True)


def fail_thirds(row: Row) -> Row:
    if row.number % 3 == 0:
        raise ValueError("a third")
    return row


def save(writer: Any) -> None:
    writer.format("noop").mode("overwrite").save()


def test_nothing_completes_if_notes_of_failed_rows_were_among_the_last_writes(
    tracked: TrackedFrame, acker: Acker, server: Server
) -> None:
    def lose(writer: Any) -> None:
        aof = Aof(server)
        save(writer)
        aof.lose()

    with pytest.raises(StoreLost, match=RESTARTED):
        tracked.map(fail_thirds, SCHEMA).write(lose)

    assert books(acker) == (10, 0, 10, 0)
    assert not RetryBook(acker, "numbers").load()  # it was no attempt
    summary = tracked.map(fail_thirds, SCHEMA).write(save)
    assert (summary.completed, {one.attempt for one in summary.failures}) == (6, {1})


def test_a_server_that_was_restarted_ends_the_job_at_once(
    tracked: TrackedFrame, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known what it has lost. The tasks would go on for an hour."""
    monkeypatch.setattr(watch, "_LOOK_EVERY_S", 0.05)
    begun = tmp_path / "begun"

    def hang(row: Row) -> Row:
        import time

        begun.touch()
        time.sleep(3600)
        return row

    def restart() -> None:
        wait_until(begun.exists, 120)
        server.kill()
        server.restart()

    thread = threading.Thread(target=restart)
    thread.start()
    with pytest.raises(StoreLost, match=RESTARTED):
        tracked.map(hang, SCHEMA).write(save)
    thread.join()


def test_a_job_without_python_goes_on_when_a_server_is_restarted(tracked: TrackedFrame, server: Server) -> None:
    """None of its rows can fail."""

    def restart(writer: Any) -> None:
        save(writer)
        server.kill()
        server.restart()

    assert tracked.order_by("number").write(restart).completed == 10


def test_a_root_whose_failure_is_lost_is_not_completed(server: Server, namespace: str) -> None:
    opened: list[Acker] = []

    def open_acker() -> Acker:
        opened.append(Acker(server.url, namespace=namespace, shards=2, block_size=8))
        return opened[-1]

    with tasks_here(open_acker):
        run = Job(open_acker).messages(batches_of(40, 30))
        run.take_lease()
        run.make_pending()
        aof = Aof(server)
        run.fail_keys({Cause("step", "bad"): np.array([key_of(7), key_of(45)], dtype=np.int64)})
        aof.lose()
        run.complete("token")
    assert books(opened[0]) == (70, 68, 0, 2)  # the two will time out
    for one in opened:
        one.close()


def test_a_replica_that_takes_over_is_noticed(keeper: Keeper, namespace: str) -> None:
    sentinels = keeper.keep(start_sentinel())
    addresses = ",".join(f"{host}:{port}" for host, port in sentinels.addresses)
    with Acker(f"redis+sentinel://{addresses}/{SERVICE}", namespace=namespace) as acker:
        lives = ServerLives(acker)
        lives.check()

        sentinels.kill_master()
        sentinels.wait_for_failover()

        with pytest.raises(StoreLost, match=RESTARTED):
            lives.check()


def test_a_server_that_was_a_replica_for_a_while_is_noticed(acker: Acker, server: Server, keeper: Keeper) -> None:
    """It has the data of the other then, and not all of its own."""
    other = keeper.keep(start_server("redis-7.0", "--repl-diskless-sync-delay", "0"))
    lives = ServerLives(acker)
    with server.client() as client:
        client.replicaof(HOST, other.port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up")
        client.replicaof("NO", "ONE")

    with pytest.raises(StoreLost, match=RESTARTED):
        lives.check()


def test_servers_that_do_not_say_are_taken_to_be_the_same(server: Server, namespace: str) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "-info")
    with Acker(server.url.replace("//", "//mute:pw@", 1), namespace=namespace) as acker:
        ServerLives(acker).check()


def test_what_times_out_after_its_server_lost_its_acks_is_no_attempt(
    server: Server, keeper: Keeper, namespace: str, numbers: Callable[[int], DataFrame], tmp_path: Path
) -> None:
    """The run is over, and another server than the one with its books comes back without its last writes. The next run
    of the spout has other messages. With one attempt, every message that is counted as failed is dead."""
    first = keeper.keep(start_server("redis-7.0"))

    def wait(batch: Any) -> None:
        Path(tmp_path, f"in {uuid4()}").touch()
        wait_until(Path(tmp_path, "go").exists, 60)

    def mark() -> None:
        wait_until(lambda: len(list(tmp_path.glob("in *"))) == 2, 60)
        aof.mark()
        Path(tmp_path, "go").touch()

    with Acker([first.url, server.url], namespace=namespace, timeout_ms=5_000, block_size=1) as acker:
        aof = Aof(server)
        options: dict[str, Any] = {"spout": "numbers", "message_id": "id", "retries": RetryPolicy(max_attempts=1)}
        tracked = track(numbers(20), acker=acker, **options)
        marking = threading.Thread(target=mark)
        marking.start()
        assert tracked.sink(wait).completed == 20
        marking.join()
        aof.lose()
        with Rotator(acker).start():
            wait_until(lambda: books(acker)[3] == 0, 30)
        timed_out = books(acker)[2]
        assert 0 < timed_out < 20
        others = numbers(5).selectExpr("concat('other ', id) as id", "number")
        assert track(others, acker=acker, **options).sink(wait).completed == 5
        assert not list(DeadLetters(acker))
        assert [one.attempt for one in RetryBook(acker, "numbers").load().values()] == [0] * timed_out
        summary = tracked.sink(wait)
        assert (summary.completed, summary.dead, summary.failures) == (20, 0, ())
        assert not RetryBook(acker, "numbers").load()
