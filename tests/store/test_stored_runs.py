"""The progress of a run as it is stored: read back, forgotten in time, and named if nobody can read it."""

import pytest

from redis_acker.errors import UnreadableRun
from redis_acker.store.progress import KEPT_FOR_MS, RunProgress, spouts_with_runs
from redis_acker.store.run_records import FORMAT, RunAbout, field_of
from tests.lua.ledger import SPOUT
from tests.store.portions import PARTITION, Run, roots


def test_what_is_known_of_a_run_is_read_back_with_partitions_in_the_order_of_their_numbers(run: Run) -> None:
    assert [run.next_pass(), run.next_pass()] == [1, 2]
    for pass_number, partition in ((2, 0), (0, 10), (0, 9), (1, 0)):
        run.next(0, 1, field_of(pass_number, partition))
    progress = RunProgress(run.ledger.acker, run.ledger.acker.spout_number(SPOUT))
    about, partitions = progress.read()
    assert about is not None
    assert (progress.name, about.spout, about.partitions, about.format) == ("run", SPOUT, 8, FORMAT)
    assert [one.partition for one in partitions] == ["0:9", "0:10", "1:0", "2:0"]


def test_a_run_that_nobody_goes_on_with_is_forgotten(run: Run) -> None:
    key = run.ledger.acker.shards.keys[0].progress(run.ledger.acker.spout_number(SPOUT))
    client = run.ledger.backend.client()
    run.next(0, 20)
    assert 0 < client.pttl(key) <= KEPT_FOR_MS
    client.persist(key)
    run.keep()
    assert KEPT_FOR_MS - 60_000 < client.pttl(key) <= KEPT_FOR_MS


def test_a_spout_has_a_run_of_its_own(run: Run) -> None:
    other = Run(run.ledger, "other", "payments")
    portions = run.next(0, 8), other.next(0, 8)
    assert [one.state for one in portions] == ["new", "new"]
    assert not set(roots(run, portions[0])) & set(roots(other, portions[1]))
    assert spouts_with_runs(run.ledger.acker).keys() == {SPOUT, "payments"}
    assert spouts_with_runs(run.ledger.acker, "payments").keys() == {"payments"}
    other.drop()
    assert spouts_with_runs(run.ledger.acker).keys() == {SPOUT}
    assert spouts_with_runs(run.ledger.acker, "payments") == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("about", b"what?"),
        ("about", b"[1]"),
        ("about", b'{"format": 1}'),
        ("about", b'{"format": "1"}'),
        ("about", b"\xff"),
        (PARTITION, b"1 2 3"),
        (PARTITION, b"a 0 0 0 - 0 0 0 0"),
        (PARTITION, b"1 0 0 0 - 0 0 9999999999999999 0"),
        (PARTITION, b"-1 0 0 0 - 0 0 0 0"),
        ("0", b"0 0 0 0 - 0 0 0 0"),
        ("0:x", b"0 0 0 0 - 0 0 0 0"),
        (b"\xff\xfe", b"x"),
    ],
    ids=repr,
)
def test_what_no_version_has_written_is_named_in_one_sentence(run: Run, field: str | bytes, value: bytes) -> None:
    key = run.ledger.acker.shards.keys[0].progress(run.ledger.acker.spout_number(SPOUT))
    run.ledger.backend.client().hset(key, field, value)
    with pytest.raises(UnreadableRun, match="cannot read: `redis-acker runs drop` drops it"):
        run.read()


def test_of_a_run_in_another_format_only_that_is_read(run: Run) -> None:
    key = run.ledger.acker.shards.keys[0].progress(run.ledger.acker.spout_number(SPOUT))
    run.ledger.backend.client().hset(key, mapping={"about": '{"format": 7, "spout": 1}', PARTITION: "other words"})
    about, partitions = run.read()
    assert about == RunAbout("", 0, "", 0, "", "", format=7)
    assert partitions == []
