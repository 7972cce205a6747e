"""The checksums by which rows are known again."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from redis_acker.store.run_records import Place
from spark_integration.runs.portions import id_sum_after

IDS: dict[str, list[Any]] = {
    "string": ["", "a", "bc", "", "déf", "a"],
    "large_string": ["", "a", "bc", "", "déf", "a"],
    "binary": [b"", b"\0", b"\0\0", b"", b"def", b"\0"],
    "int64": [0, -1, 2, 2, 1 << 62, 0],
    "int8": [0, -1, 2, 2, 100, 0],
}


def sum_of(ids: pa.Array, cuts: Sequence[int] = ()) -> int:
    place = Place("", 0, 0)
    for begin, end in pairwise((0, *cuts, len(ids))):
        place = Place("", end, id_sum_after(place, ids.slice(begin, end - begin)))
    return place.sum


@pytest.mark.parametrize("kind", IDS)
def test_the_sum_of_ids_is_the_same_wherever_they_are_cut(kind: str) -> None:
    ids = pa.array(IDS[kind], type=kind)
    found = {sum_of(ids, range(1, len(ids))), sum_of(ids), *(sum_of(ids, [cut]) for cut in range(1, len(ids)))}
    assert len(found) == 1


@pytest.mark.parametrize("kind", IDS)
def test_the_sum_of_ids_changes_with_each_of_them_and_with_their_order(kind: str) -> None:
    ids = IDS[kind]
    others = [ids[:at] + ids[at + 1 :] for at in range(1, len(ids))]
    others += [[*ids[:at], ids[at + 1], ids[at], *ids[at + 2 :]] for at in (1, 3, 4)]
    others += [[*ids[:at], ids[4], *ids[at + 1 :]] for at in (0, 1, 2, 3, 5)]
    assert sum_of(pa.array(ids, type=kind)) not in {sum_of(pa.array(one, type=kind)) for one in others}


def test_texts_with_the_same_letters_have_different_sums() -> None:
    assert sum_of(pa.array(["ab", "c"])) != sum_of(pa.array(["a", "bc"]))


def test_a_missing_id_is_left_to_whoever_tracks_it() -> None:
    for kind in ("string", "int64"):
        sum_of(pa.array([None, *IDS[kind]], type=kind))
