"""A batch of ack vals that is delivered again changes nothing."""

import numpy as np

from redis_acker import Token, new_edge, new_edges
from tests.lua.ledger import SPOUT, TICK_MS, Ledger, as_ints


def test_a_batch_that_is_sent_again_changes_nothing(ledger: Ledger) -> None:
    for size in (1, 8, 9, 300):
        roots, edges = ledger.start(size)
        children = new_edges(size)
        assert ledger.acker.ack(roots, edges ^ children, token="step 1").applied == size
        again = ledger.acker.ack(roots, edges ^ children, token="step 1")
        assert (again.applied, again.completed, again.duplicates) == (0, 0, size)
        assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots[:3])] == children[:3].tolist()
        assert ledger.acker.ack(roots, children, token="step 2").completed == size
    assert ledger.count("duplicates") == 1 + 8 + 9 + 300


def test_without_its_token_the_same_batch_would_undo_itself(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    other = new_edge()
    ledger.acker.ack(root, other, token="one name")
    ledger.acker.ack(root, other, token="another name")
    assert ledger.acker.inspect(root).ack_val == edge


def test_the_part_of_a_batch_that_was_not_applied_is_applied_when_it_is_sent_again(ledger: Ledger) -> None:
    first, first_edges = ledger.start(5)
    second, second_edges = ledger.start(5)
    ledger.acker.ack(first, first_edges ^ np.uint64(1), token="batch")
    roots, vals = np.concatenate((first, second)), np.concatenate((first_edges, second_edges)) ^ np.uint64(1)
    acks = ledger.acker.ack(roots, vals, token="batch")
    assert (acks.applied, acks.duplicates) == (5, 5)
    assert {ledger.acker.inspect(root).ack_val for root in as_ints(roots)} == {1}


def test_a_token_that_came_before_the_init_is_remembered_after_it(ledger: Ledger) -> None:
    roots, edges, children = ledger.acker.allocate(SPOUT, 20), new_edges(20), new_edges(20)
    ledger.acker.ack(roots, edges ^ children, token="early")
    assert ledger.acker.ack(roots, edges ^ children, token="early").duplicates == 20
    ledger.acker.init(roots, edges)
    assert ledger.acker.ack(roots, edges ^ children, token="early").duplicates == 20
    assert ledger.acker.ack(roots, children).completed == 20


def test_a_token_is_remembered_as_long_as_a_root_it_touched_is_pending(ledger: Ledger) -> None:
    """Extended over many rotations: a memory of tokens by age would have lost it."""
    roots, _ = ledger.start(12)
    vals = new_edges(12)
    ledger.acker.ack(roots, vals, token="batch")
    for _ in range(10):
        ledger.acker.extend(roots[:1])
        ledger.pass_time(TICK_MS)
    before = ledger.acker.inspect(int(roots[0])).ack_val
    assert ledger.acker.ack(roots, vals, token="batch").duplicates == 12
    assert ledger.acker.inspect(int(roots[0])).ack_val == before


def test_a_batch_sent_again_after_its_block_finished_is_late(ledger: Ledger) -> None:
    roots, edges = ledger.start(12)
    ledger.acker.ack(roots, edges, token="batch")
    assert ledger.acker.ack(roots, edges, token="batch").late == 12
    assert ledger.completed() == as_ints(roots)


def test_a_batch_sent_again_long_after_its_block_finished_is_an_orphan(ledger: Ledger) -> None:
    roots, edges = ledger.start(12)
    ledger.acker.ack(roots, edges, token="batch")
    for _ in range(4):
        ledger.pass_time(TICK_MS)
    assert ledger.acker.ack(roots, edges, token="batch").completed == 0
    assert sum(ledger.pass_time(TICK_MS).orphans for _ in range(3)) == 1
    assert (ledger.completed(), ledger.failed()) == (as_ints(roots), [])


def test_of_one_name_a_lower_sequence_is_a_second_delivery(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    name, sent = b"sender 1", {sequence: new_edge() for sequence in (1, 5, 6, 2**32 - 1)}
    for sequence in (5, 1, 5, 6, 2**32 - 1, 6):
        ledger.acker.ack(root, sent[sequence], token=Token(name, sequence))
    assert ledger.acker.inspect(root).ack_val == edge ^ sent[5] ^ sent[6] ^ sent[2**32 - 1]
    assert ledger.count("duplicates") == 3


def test_many_senders_are_told_apart(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    names = [new_edge().to_bytes(8, "big") for _ in range(50)]
    vals = [new_edge() for _ in names]
    for _ in range(2):
        for name, val in zip(names, vals, strict=True):
            ledger.acker.ack(root, val, token=Token(name, 3))
    expected = edge
    for val in vals:
        expected ^= val
    assert ledger.acker.inspect(root).ack_val == expected
    assert ledger.count("duplicates") == 50


def test_a_name_is_not_found_across_two_tokens(ledger: Ledger) -> None:
    """The second name is there byte by byte, but in the middle of the first token."""
    root, edge = ledger.start_one()
    first = Token(b"\x01\x02\x03\x04\x05\x06\x07\x08", 0x090A0B0C)
    second = Token(first.packed()[4:], 1)
    vals = [new_edge(), new_edge()]
    for token, val in zip((first, second), vals, strict=True):
        assert ledger.acker.ack(root, val, token=token).applied == 1
        assert ledger.acker.ack(root, val, token=token).duplicates == 1
    assert ledger.acker.inspect(root).ack_val == edge ^ vals[0] ^ vals[1]


def test_a_token_holds_for_pairs_and_for_vectors(ledger: Ledger) -> None:
    """Some roots of a block go as pairs, more of them as a vector: the token is the block's."""
    roots, edges = ledger.start(100)
    assert ledger.acker.ack(roots[:3], edges[:3], token="pairs").completed == 3
    assert ledger.acker.ack(roots[:3], edges[:3], token="pairs").duplicates == 3
    assert ledger.acker.ack(roots[3:60], edges[3:60], token="vector").completed == 57
    assert ledger.acker.ack(roots[3:60], edges[3:60], token="vector").duplicates == 57
    assert ledger.acker.pending_count() == 40
