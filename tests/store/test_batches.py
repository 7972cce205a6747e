"""Folding ack vals and cutting them into script calls of bounded work."""

from collections import Counter
from collections.abc import Iterable
from struct import unpack_from

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_acker.store.batches import (
    CALL_BUDGET_US,
    Batch,
    ack_batches,
    extend_batches,
    fold,
    init_batches,
    root_batches,
    spans,
)
from redis_acker.store.ids import U64Array, as_u64, blocks_of, indexes_of, make_roots, shards_of, spout_of
from redis_acker.store.packed import pack_ack_vals, pack_block, pack_count, pack_ids

quick = settings(max_examples=60, deadline=None)

NUMBERS = st.integers(0, 2**64 - 1)
ROOTS = st.builds(
    lambda spout, sequence, index: spout << 52 | sequence << 10 | index,
    st.integers(0, 2).map(lambda number: (0, 1, 4095)[number]),
    st.integers(0, 20),
    st.integers(0, 1023),
)
ACKS = st.lists(st.tuples(ROOTS, NUMBERS), max_size=300)


def oracle(acks: Iterable[tuple[int, int]]) -> dict[int, int]:
    folded: dict[int, int] = {}
    for root, ack_val in acks:
        folded[root] = folded.get(root, 0) ^ ack_val
    return folded


def columns(acks: list[tuple[int, int]]) -> tuple[U64Array, U64Array]:
    return as_u64([root for root, _ in acks], "roots"), as_u64([ack_val for _, ack_val in acks], "ack_vals")


def unpack_sparse(data: bytes) -> Iterable[tuple[int, int]]:
    """Pairs of root and ack val."""
    at = 0
    while at < len(data):
        block, count = unpack_from(">QH", data, at)
        at += 10
        for _ in range(count):
            yield block + unpack_from(">H", data, at)[0], unpack_from("<Q", data, at + 2)[0]
            at += 10


def unpack_dense(parts: list[bytes]) -> Iterable[tuple[int, int]]:
    for head, vector in zip(parts[::2], parts[1::2], strict=True):
        block, count = unpack_from(">QH", head)
        vals = np.frombuffer(vector, dtype="<u8")
        assert np.count_nonzero(vals) <= count <= len(vals)
        yield from ((block + i, int(val)) for i, val in enumerate(vals) if val)


def unpack_batch(batch: Batch) -> list[tuple[int, int]]:
    return [*unpack_sparse(b"".join(batch.sparse)), *unpack_dense(batch.dense)]


def blocks_in(batch: Batch) -> list[int]:
    """The blocks of a batch of acks, as often as they are there."""
    return [unpack_from(">Q", head)[0] for head in (*batch.sparse[::2], *batch.dense[::2])]


@quick
@given(ACKS)
def test_folding_is_xor_by_root(acks: list[tuple[int, int]]) -> None:
    roots, ack_vals = fold(*columns(acks))
    assert dict(zip(roots.tolist(), ack_vals.tolist(), strict=True)) == oracle(acks)
    assert roots.tolist() == sorted(set(roots.tolist()))


def test_folding_what_is_folded_copies_nothing() -> None:
    roots, ack_vals = make_roots(1, 1, 100, 10), np.arange(100, dtype=np.uint64)
    folded_roots, folded_vals = fold(roots, ack_vals)
    assert folded_roots is roots
    assert folded_vals is ack_vals


@quick
@given(ACKS, st.integers(1, 5))
def test_spans_are_the_blocks_of_the_roots(acks: list[tuple[int, int]], shards: int) -> None:
    roots, _ = fold(*columns(acks))
    seen: list[int] = []
    for span in spans(roots, shards):
        part = roots[span.start : span.end]
        assert set(blocks_of(part).tolist()) == {span.block}
        assert span.shard == shards_of(part[:1], shards)[0]
        assert span.size == int(indexes_of(part).max()) + 1
        seen += part.tolist()
    assert seen == roots.tolist()


@quick
@given(ACKS, st.integers(1, 5))
def test_every_ack_val_is_in_one_batch_of_its_shard(acks: list[tuple[int, int]], shards: int) -> None:
    roots, ack_vals = fold(*columns(acks))
    sent: list[tuple[int, int]] = []
    blocks: Counter[int] = Counter()
    for batch in ack_batches(roots, ack_vals, shards, 1024):
        pairs = unpack_batch(batch)
        found = blocks_in(batch)
        assert {int(shards_of(as_u64(block, "block"), shards)[0]) for block in found} == {batch.shard}
        assert {spout_of(block) for block in found} == batch.spouts
        blocks.update(found)
        sent += [(root, ack_val) for root, ack_val in pairs if ack_val]
    assert sorted(sent) == sorted((root, ack_val) for root, ack_val in oracle(acks).items() if ack_val)
    assert blocks == Counter(set(blocks_of(roots).tolist()))


@quick
@given(st.lists(ROOTS, max_size=300), st.integers(1, 5))
def test_every_root_is_named_in_one_batch_of_its_shard(named: list[int], shards: int) -> None:
    roots = as_u64(sorted(set(named)), "roots")
    seen: list[int] = []
    for batch in root_batches(roots, shards, 1024):
        data, at = b"".join(batch.sparse), 0
        while at < len(data):
            block, count = unpack_from(">QH", data, at)
            assert int(shards_of(as_u64(block, "block"), shards)[0]) == batch.shard
            seen += [block + index for index in unpack_from(f">{count}H", data, at + 10)]
            at += 10 + 2 * count
    assert sorted(seen) == roots.tolist()


def test_whole_blocks_are_extended_by_their_names_alone() -> None:
    roots = make_roots(1, 1, 250, 100)
    first, second, third = dict.fromkeys(blocks_of(roots).tolist())

    [whole] = extend_batches(roots, 1, 100)
    [without_one] = extend_batches(np.delete(roots, 0), 1, 100)

    assert whole.dense == [pack_block(first), pack_block(second)]
    assert whole.sparse[::2] == [pack_count(third, 50)]
    assert without_one.dense == [pack_block(second)]
    assert without_one.sparse[::2] == [pack_count(first, 99), pack_count(third, 50)]


@quick
@given(st.lists(st.integers(1, 1024), max_size=20), st.integers(1, 5))
def test_every_block_is_in_one_init_of_its_shard(sizes: list[int], shards: int) -> None:
    roots = np.concatenate([make_roots(1, i, size, 1024) for i, size in enumerate(sizes)] or [make_roots(1, 0, 0, 1)])
    ack_vals = np.arange(1, len(roots) + 1, dtype=np.uint64)
    seen: list[tuple[bytes, bytes, bytes]] = []
    for batch in init_batches(roots, ack_vals, shards, np.arange(len(roots)), 7):
        for block, vector, ids in zip(batch.dense[::3], batch.dense[1::3], batch.dense[2::3], strict=True):
            number = int.from_bytes(block[:8], "big")
            assert int(shards_of(as_u64(number, "block"), shards)[0]) == batch.shard
            seen.append((block, vector, ids))
    expected, start = [], 0
    for i, size in enumerate(sizes):
        vector = ack_vals[start : start + size].astype("<u8").tobytes()
        expected.append((pack_count(1 << 52 | i << 10, size), vector, pack_ids(np.arange(start, start + size), 7)))
        start += size
    assert sorted(seen) == expected


@pytest.mark.parametrize(
    ("touched", "highest", "dense"),
    [
        (1, 1, False),
        (8, 8, False),
        (9, 9, True),
        (8, 1024, False),
        (32, 1024, False),
        (33, 1024, True),
        (1024, 1024, True),
    ],
)
def test_a_block_goes_dense_when_enough_of_its_roots_are_touched(touched: int, highest: int, dense: bool) -> None:
    indexes = [*range(touched - 1), highest - 1]
    roots = as_u64([1 << 52 | index for index in indexes], "roots")
    [batch] = ack_batches(roots, roots, 1, 1024)
    assert (bool(batch.dense), bool(batch.sparse)) == (dense, not dense)
    assert sorted(unpack_batch(batch)) == [(root, root) for root in roots.tolist()]


@pytest.mark.parametrize(
    ("vals", "packed"),
    [
        ([7] * 9, pack_ack_vals(as_u64([7], "one"))),
        ([7] * 8 + [8], None),
        ([8] + [7] * 8, None),
        ([7, 8] + [7] * 7, None),
    ],
)
def test_one_ack_val_goes_for_all_roots_of_a_block_if_they_have_it_in_common(
    vals: list[int], packed: bytes | None
) -> None:
    """Not for a few roots, or if the block has others before or between them."""
    roots, ack_vals = make_roots(1, 0, 9, 1024), as_u64(vals, "vals")
    each = pack_ack_vals(ack_vals)
    [acks] = ack_batches(roots, ack_vals, 1, 1024)
    [init] = init_batches(roots, ack_vals, 1, None, 1)
    [with_gap] = ack_batches(roots + np.uint64(1), ack_vals, 1, 1024)
    [few] = init_batches(roots[:8], ack_vals[:8], 1, None, 1)

    assert acks.dense[1] == init.dense[1] == (packed or each)
    assert with_gap.dense[1] == bytes(8) + each
    assert few.dense[1] == each[:64]


@pytest.mark.parametrize("block_size", [1, 2, 9, 100, 500, 1024])
def test_a_call_stays_within_its_budget(block_size: int) -> None:
    roots = make_roots(1, 1, (2000 if block_size < 10 else 400) * block_size, block_size)
    one_each = roots[indexes_of(roots) == block_size - 1]
    kinds = {
        "ack": list(ack_batches(roots, roots, 3, block_size)),
        "ack of one root of each": list(ack_batches(one_each, one_each, 3, block_size)),
        "fail": list(root_batches(roots, 3, block_size)),
        "extend": list(extend_batches(roots, 3, block_size)),
        "init": list(init_batches(roots, roots, 3, [bytes(20)] * len(roots), 1)),
    }
    for kind, batches in kinds.items():
        for batch in batches:
            alone = len(batch.sparse) + len(batch.dense) <= 3
            assert alone or batch.cost_us <= CALL_BUDGET_US, kind
        assert len(batches) > 3, kind
        # Not one block a call, but as many as the budget allows.
        assert max(batch.cost_us for batch in batches) > CALL_BUDGET_US / 3, kind


def test_a_call_has_few_enough_arguments_for_managed_services() -> None:
    roots = make_roots(1, 1, 10_000, 1)
    assert max(len(batch.dense) for batch in init_batches(roots, roots, 1, None, 1)) < 1000


def test_nothing_makes_no_batch() -> None:
    nothing = as_u64([], "roots")
    assert list(ack_batches(nothing, nothing, 3, 10)) == []
    assert list(root_batches(nothing, 3, 10)) == []
    assert list(extend_batches(nothing, 3, 10)) == []
    assert list(init_batches(nothing, nothing, 3, None, 1)) == []


def test_the_same_batch_is_cut_the_same_way_again() -> None:
    """A token covers one call: sent again, every block must meet it again."""
    roots, ack_vals = fold(make_roots(1, 1, 5000, 100)[::7], np.arange(715, dtype=np.uint64))
    first, second = (list(ack_batches(roots, ack_vals, 3, 100)) for _ in range(2))
    assert first == second
