"""Anchors as bytes and as JSON: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_acker import Anchors
from redis_acker.errors import BadInput

ROOTS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**63, 2**64 - 1])
EDGES = st.integers(1, 2**64 - 1) | st.sampled_from([1, 2**63, 2**64 - 1])
ANCHORS = st.dictionaries(ROOTS, EDGES, max_size=5)


@given(ANCHORS)
def test_anchors_survive_bytes(edges: dict[int, int]) -> None:
    packed = Anchors(edges).to_bytes()
    assert len(packed) == 16 * len(edges)
    assert Anchors.from_bytes(packed) == edges
    assert Anchors.from_bytes(bytearray(packed)) == edges


@given(ANCHORS)
def test_anchors_survive_json(edges: dict[int, int]) -> None:
    text = Anchors(edges).to_json()
    assert Anchors.from_json(text) == edges
    assert Anchors.from_json(text.encode()) == edges


@given(ANCHORS)
def test_json_readers_that_know_only_floats_lose_nothing(edges: dict[int, int]) -> None:
    def no_number(text: str) -> Any:
        raise AssertionError(text)

    json.loads(Anchors(edges).to_json(), parse_int=no_number, parse_float=no_number)


@given(ANCHORS)
def test_anchors_are_a_mapping_that_can_be_copied_and_pickled(edges: dict[int, int]) -> None:
    anchors = Anchors(edges)
    assert isinstance(anchors, Mapping)
    assert dict(anchors) == dict(anchors.items()) == edges
    assert (len(anchors), list(anchors), list(anchors.values())) == (len(edges), list(edges), list(edges.values()))
    assert copy.deepcopy(anchors) == pickle.loads(pickle.dumps(anchors)) == anchors


def test_the_bytes_are_big_endian_root_then_edge() -> None:
    """Programs in other languages read them."""
    assert Anchors({1: 2**64 - 1}).to_bytes() == bytes(7) + b"\x01" + b"\xff" * 8
    assert Anchors({10: 255}).to_json() == '{"a": "ff"}'


def test_anchors_do_not_change_with_the_dict_they_were_made_of() -> None:
    edges = {1: 2}
    anchors = Anchors(edges)
    edges[3] = 4
    assert anchors == {1: 2}


def test_numbers_of_numpy_become_plain_numbers() -> None:
    anchors = Anchors({np.uint64(2**63): np.uint64(5)})  # type: ignore[dict-item]
    assert repr(anchors) == "Anchors({9223372036854775808: 5})"


@pytest.mark.parametrize(
    "edges", [{1: 0}, {-1: 5}, {1: -5}, {2**64: 5}, {1: 2**64}, {"1": 5}, {1: "5"}, {1: None}, {1.0: 5}, {True: 5}]
)
def test_anchors_hold_64_bit_numbers_and_no_zero_edge(edges: Any) -> None:
    root, edge = next(iter(edges.items()))
    shown = re.escape(f"not {root!r}: {edge!r}.")
    with pytest.raises(BadInput, match=rf"^Anchors map a 64-bit root to a 64-bit edge that is not zero, {shown}$"):
        Anchors(edges)


WORD = (1).to_bytes(8, "big")

MALFORMED_BYTES = {
    "too short": WORD,
    "too long": WORD * 3,
    "zero edge": WORD + bytes(8),
    "root named twice": WORD * 4,
    "a text": "0" * 16,
    "nothing": None,
}

MALFORMED_JSON = {
    "empty": "",
    "no JSON": "{",
    "not UTF-8": b"\xff",
    "a list": '[["1", "2"]]',
    "an empty list": "[]",
    "a text": '"ab"',
    "a number": "5",
    "null": "null",
    "a number for an edge": '{"1": 2}',
    "null for an edge": '{"1": null}',
    "an object for an edge": '{"1": {"2": "3"}}',
    "no hexadecimal root": '{"g": "1"}',
    "an empty root": '{"": "1"}',
    "a sign": '{"1": "-2"}',
    "a prefix": '{"1": "0x2"}',
    "an underscore": '{"1": "1_2"}',
    "65 bits": '{"1": "10000000000000000"}',
    "zero edge": '{"1": "0"}',
    "root named twice": '{"1": "2", "1": "3"}',
    "root spelt two ways": '{"a": "2", "A": "3"}',
    "too deep": "[" * 100_000,
    "nothing": None,
}


@pytest.mark.parametrize("data", MALFORMED_BYTES.values(), ids=MALFORMED_BYTES)
def test_malformed_bytes_are_refused_with_one_short_error(data: Any) -> None:
    _assert_refused(Anchors.from_bytes, data)


@pytest.mark.parametrize("text", MALFORMED_JSON.values(), ids=MALFORMED_JSON)
def test_malformed_json_is_refused_with_one_short_error(text: Any) -> None:
    _assert_refused(Anchors.from_json, text)


@given(st.binary(max_size=64))
def test_any_bytes_are_anchors_or_refused(data: bytes) -> None:
    _accept_or_refuse(Anchors.from_bytes, data, lambda anchors: anchors.to_bytes() == data)


HEX = st.sampled_from(["0", "1", "f", "F", "00", "1f", "x", "", "-1", "10000000000000000"])
JSON_TEXTS = st.text(max_size=20) | st.recursive(
    st.none() | st.integers() | HEX, lambda inner: st.lists(inner) | st.dictionaries(HEX, inner), max_leaves=5
).map(json.dumps)


@given(JSON_TEXTS)
def test_any_text_is_anchors_or_refused(text: str) -> None:
    _accept_or_refuse(Anchors.from_json, text, lambda anchors: Anchors.from_json(anchors.to_json()) == anchors)


def _assert_refused(read: Callable[[Any], Anchors], data: Any) -> None:
    with pytest.raises(BadInput) as caught:
        read(data)
    assert type(caught.value) is BadInput
    assert len(str(caught.value)) < 400


def _accept_or_refuse(read: Callable[[Any], Anchors], data: Any, is_right: Callable[[Anchors], bool]) -> None:
    try:
        anchors = read(data)
    except BadInput:
        return
    assert is_right(anchors)
