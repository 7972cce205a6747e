"""Message ids and attempts, packed and unpacked, as text and in JSON."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_acker.errors import BadInput
from redis_acker.store.message_ids import (
    MAX_ATTEMPT,
    TextIds,
    check_attempts,
    check_message_ids,
    id_from_json,
    id_from_text,
    id_to_json,
    id_to_text,
)
from redis_acker.store.packed import pack_ids, unpack_ids
from redis_acker.store.scripts import assemble
from redis_acker.testing import fake_redis

quick = settings(max_examples=60, deadline=None)

IDS = st.one_of(
    st.lists(st.text(max_size=20), min_size=1, max_size=30),
    st.lists(st.binary(max_size=20), min_size=1, max_size=30),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    st.tuples(st.integers(-(2**63), 2**63 - 31), st.integers(1, 30)).map(lambda one: list(range(one[0], sum(one)))),
)


def packed(ids: Any, attempts: Any, count: int) -> bytes:
    return pack_ids(None if ids is None else check_message_ids(ids, count), check_attempts(attempts, count))


@quick
@given(IDS, st.data())
def test_ids_and_attempts_come_back_as_they_went_in(ids: list[Any], data: st.DataObject) -> None:
    attempts = data.draw(st.lists(st.integers(1, MAX_ATTEMPT), min_size=len(ids), max_size=len(ids)))
    assert unpack_ids(packed(ids, attempts, len(ids)), range(len(ids))) == (ids, attempts)


SLICE = """-- needs: ids
local indexes = {}
for i = 3, #ARGV do indexes[#indexes + 1] = tonumber(ARGV[i]) end
return slice_ids(ARGV[1], tonumber(ARGV[2]), indexes)
"""


@quick
@given(IDS, st.booleans(), st.data())
def test_a_slice_made_by_lua_holds_the_ids_of_its_roots(ids: list[Any], alike: bool, data: st.DataObject) -> None:
    count = len(ids)
    indexes = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    attempts = [3] * count if alike else [i + 1 for i in range(count)]
    whole = packed(ids, attempts, count)
    found: Any = fake_redis().eval(assemble(SLICE), 0, whole, count, *indexes)
    expected = [ids[i] for i in indexes], [attempts[i] for i in indexes]
    assert unpack_ids(found, indexes) == expected


@pytest.mark.parametrize(
    ("ids", "bytes_each"),
    [
        (list(range(100, 600)), 0.03),
        ([f"{i:08}" for i in range(500)], 8.02),
        ([7 * i for i in range(500)], 8.02),
        (["x" * (i % 2 + 4) for i in range(500)], 8.51),
    ],
)
def test_ids_are_packed_tightly(ids: list[Any], bytes_each: float) -> None:
    assert len(packed(ids, 2, 500)) <= bytes_each * 500


def test_what_says_nothing_takes_no_room() -> None:
    assert packed(None, 1, 5) == b""
    assert packed(None, [1] * 5, 5) == b""
    assert unpack_ids(b"", range(3)) == ([None] * 3, [1] * 3)


def test_attempts_are_kept_without_ids() -> None:
    assert unpack_ids(packed(None, [1, 2, 3], 3), range(3)) == ([None] * 3, [1, 2, 3])
    assert unpack_ids(packed(None, 9, 3), range(3)) == ([None] * 3, [9] * 3)


def test_integers_that_follow_each_other_only_modulo_2_to_the_64_are_no_range() -> None:
    ids = [2**63 - 1, -(2**63)]
    assert unpack_ids(packed(ids, 1, 2), range(2)) == (ids, [1, 1])


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "uint64", ">i8", ">u2"])
def test_arrays_of_integers_are_ids(dtype: str) -> None:
    ids = np.array([3, 1, 2], dtype=dtype)
    assert unpack_ids(packed(ids, 1, 3), range(3))[0] == [3, 1, 2]


@pytest.mark.parametrize("attempts", [2, np.int64(2), [2, 2], (2, 2), np.array([2, 2]), iter([2, 2])])
def test_one_attempt_for_all_is_kept_once(attempts: Any) -> None:
    assert check_attempts(attempts, 2) == 2


def test_the_sequence_of_ids_is_not_changed_by_later_changes_of_the_caller() -> None:
    ids = ["a", "b"]
    checked = check_message_ids(ids, 2)
    ids[0] = "c"
    assert isinstance(checked, list)
    assert checked == ["a", "b"]


@pytest.mark.parametrize("texts", [["aa", "bb", "cc"], ["", "a", "äöü"], ["x" * 1024]], ids=["equal", "mixed", "long"])
@pytest.mark.parametrize("text", [True, False])
def test_ids_in_one_buffer_are_packed_like_a_list_of_them(texts: list[str], text: bool) -> None:
    encoded = [one.encode() for one in texts]
    ends = np.cumsum([3, *map(len, encoded)])  # they need not begin at the start of the buffer
    ids = TextIds(ends, memoryview(b"???" + b"".join(encoded)), text=text)

    assert packed(ids, 1, len(texts)) == packed(texts if text else encoded, 1, len(texts))
    assert pack_ids(ids[0:1], 1) == packed((texts if text else encoded)[:1], 1, 1)


def test_an_id_in_a_buffer_that_is_too_long_is_refused() -> None:
    ids = TextIds(np.array([0, 2000]), memoryview(b"x" * 2000), text=True)

    with pytest.raises(BadInput, match="A message id of 2000 bytes is over the limit of 1024"):
        check_message_ids(ids, 1)


@pytest.mark.parametrize("message_id", [None, 0, -(1 << 63), "", "text", b"", b"\xff\x00"])
def test_message_ids_survive_json(message_id: Any) -> None:
    back = id_from_json(json.loads(json.dumps(id_to_json(message_id))))

    assert (type(back), back) == (type(message_id), message_id)


@pytest.mark.parametrize(
    "wrong", [1.5, True, [], {}, {"base64": 3}, {"base64": "?"}, {"base64": "", "more": 1}, 1 << 63, "x" * 1025]
)
def test_what_is_no_message_id_in_json_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInput):
        id_from_json(wrong)


@pytest.mark.parametrize("message_id", [0, -(1 << 63), "", "i:7", "a:b", b"", b"\xff\x00"])
def test_message_ids_survive_as_text(message_id: Any) -> None:
    back = id_from_text(id_to_text(message_id))

    assert (type(back), back) == (type(message_id), message_id)


@pytest.mark.parametrize("wrong", ["i:", "i:x", "b:?"])
def test_a_text_that_is_no_message_id_is_refused(wrong: str) -> None:
    with pytest.raises(BadInput, match="is not a message id"):
        id_from_text(wrong)
