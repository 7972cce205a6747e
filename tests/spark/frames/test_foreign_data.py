"""Another program has written into the keys that Spark jobs keep beside the ledger: the job goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from redis_acker import Acker, RetryPolicy, new_edges
from redis_acker.store.message_ids import id_to_text
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.streams import Cause
from spark_integration.runs.failing import NotedRows
from spark_integration.runs.outcomes import Outcomes
from spark_integration.runs.spout import RunSpout
from spark_integration.runs.strays import strays_of
from spark_integration.streams.spout import StreamSpout
from spark_integration.streams.strays import StrayRows
from spark_integration.topologies.notes import Note, Notes
from tests.backends import Servers

SPOUT = "numbers"
JUNK = (b"", b"junk", b"[" * 100_000, b"9" * 5_000, b"{}", b"[]", b"7", b'["a"]', b"\xff", b'["a", "b", "c"]')


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    with Acker(servers.get("redis-7.0").url, namespace=namespace) as acker:
        yield acker
        for key in acker.servers.client(0).scan_iter(match=f"*{namespace}*"):
            acker.servers.client(0).delete(key)


def put_junk(acker: Acker, name: str) -> None:
    found = acker.shards.failed_rows(name)
    for at, junk in enumerate(JUNK):
        acker.shards.ask(found.shard, "HSET", found.key, b"junk \xff %d" % at, junk)


def test_notes_of_failed_rows_are_read_beside_junk_and_no_failed_row_is_forgotten(acker: Acker) -> None:
    noted = NotedRows(acker, "run")
    noted.begin()
    noted.add(np.array([1, -2]), Cause("parse", "broken", fatal=True))
    noted.add(np.array([3]), Cause("parse", "cut"))
    put_junk(acker, "run")
    put_junk(acker, "run:causes")
    causes = acker.shards.failed_rows("run:causes")
    [cut] = [name for name, text in causes.items() if b"cut" in text]
    causes.put({cut.decode(): "junk"})
    acker.shards.failed_rows("run").put({"9" * 30: "x"})
    found = {cause.error: sorted(keys.tolist()) for cause, keys in noted.read().items()}
    assert found.pop("broken") == [-2, 1]
    assert list(found.values()) == [[3]]
    assert len(Quarantine(acker.shards)) == 2 * len(JUNK) + 2


def test_notes_of_what_bolts_hold_are_read_beside_junk(acker: Acker) -> None:
    note = Note("long", "ff", [1, 2], "parse", "a tuple", 1)
    Notes(acker, "run").put("here", note)
    put_junk(acker, "run")
    assert Notes(acker, "run").read() == {"here": note}
    assert len(Quarantine(acker.shards)) == len(JUNK)


@pytest.mark.parametrize(
    "note",
    [b"junk", b"1 2", b"1 -2 500", b"1 9999999999 500", b"1 5 7", b"9" * 5000 + b" 1 500", b"\x1b[31m\n", b"\xff"],
)
def test_a_note_of_roots_that_no_run_wrote_stops_no_run(
    acker: Acker, note: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    spout = RunSpout(acker, SPOUT, RetryPolicy())
    acker.shards.ask(0, "SET", acker.shards.keys[0].run(spout.number), note)
    spout.take_lease()
    spout.close()
    [said] = [one.getMessage() for one in caplog.records]
    assert "cannot be read" in said
    assert said.isprintable()


def test_what_is_kept_of_rows_is_left_out_where_it_is_junk(acker: Acker) -> None:
    spout = RunSpout(acker, SPOUT, RetryPolicy(max_attempts=1), lambda: "run")
    ids = [f"m{at}" for at in range(len(JUNK))]
    rows = acker.shards.failed_rows("run")
    for name, junk in zip(ids, JUNK, strict=True):
        acker.shards.ask(rows.shard, "HSET", rows.key, id_to_text(name), junk)
    roots = acker.allocate(SPOUT, len(ids))
    acker.init(roots, new_edges(len(ids)), message_ids=ids)
    acker.fail(roots, component="parse", error="broken")
    spout.take_lease()
    assert sorted(str(one.message_id) for one in spout.note_failures()) == sorted(ids)
    spout.close()


def test_strays_of_a_stream_are_buried_beside_junk(acker: Acker) -> None:
    spout = StreamSpout(acker, SPOUT, RetryPolicy(), lambda row: row[0], None, hands_over=False)
    strays = acker.shards.failed_rows(strays_of(spout.rows_name))
    strays.put({"stray 1": '["no id", [1, 2]]'})
    put_junk(acker, strays_of(spout.rows_name))
    spout.hold()
    StrayRows(acker, spout, lambda row: row[0]).bury()
    spout.let_go()
    assert spout.dead == 1
    assert len(Quarantine(acker.shards)) == len(JUNK)


@pytest.mark.parametrize("name", [b"\xff", b"i:x", b"", b"z:1", b"s:fine"])
def test_junk_among_the_dead_letters_stops_no_run(acker: Acker, name: bytes) -> None:
    spout = RunSpout(acker, SPOUT, RetryPolicy())
    acker.shards.ask(0, "HSET", acker.shards.keys[0].dead(spout.number), name, b"junk")
    spout.take_lease()
    spout.known_before()
    spout.close()
    stream = StreamSpout(acker, SPOUT, RetryPolicy(), lambda row: row[0], None, hands_over=False)
    stream.hold()
    stream.known_before()
    stream.let_go()
    with Outcomes(acker, spout=SPOUT) as outcomes:
        assert outcomes.completed == []
