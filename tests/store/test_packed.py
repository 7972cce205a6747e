"""Packed bytes that only Python writes and reads: anchors."""

from __future__ import annotations

import numpy as np

from redis_acker.store.packed import (
    ANCHOR_BYTES,
    pack_anchor_arrays,
    pack_anchors,
    unpack_anchor_arrays,
    unpack_anchors,
)


def test_anchors_are_the_same_bytes_one_by_one_and_as_arrays() -> None:
    edges = {0: 1, 2**64 - 1: 2**63, 5 << 52: 2**64 - 1}
    roots = np.array(list(edges), dtype=np.uint64)
    packed = pack_anchors(edges)
    assert packed == pack_anchor_arrays(roots, np.array(list(edges.values()), dtype=np.uint64))
    assert packed[:ANCHOR_BYTES] == bytes(15) + b"\1"
    assert dict(unpack_anchors(packed)) == edges
    assert [column.tolist() for column in unpack_anchor_arrays(packed)] == [list(edges), list(edges.values())]
    assert pack_anchors({}) == b""
    assert [len(column) for column in unpack_anchor_arrays(b"")] == [0, 0]
