"""Anchors that carry the context of a trace: readable by everyone, and nothing else is taken for one."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_acker import Anchors
from redis_acker.errors import BadInput
from tests.components.test_anchors_on_the_wire import ANCHORS, WORD

TRACES = st.binary(min_size=25, max_size=25)
TRACE = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736" + "00f067aa0ba902b7" + "01")
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@given(ANCHORS.filter(bool), TRACES)
def test_the_context_comes_behind_the_anchors_and_survives_with_them(edges: dict[int, int], trace: bytes) -> None:
    anchors = Anchors.traced(edges, trace)
    assert anchors == Anchors(edges)
    assert anchors.to_bytes() == Anchors(edges).to_bytes() + trace
    for found in (
        Anchors.from_bytes(anchors.to_bytes()),
        Anchors.from_bytes(bytearray(anchors.to_bytes())),
        Anchors.from_json(anchors.to_json()),
        pickle.loads(pickle.dumps(anchors)),
        copy.deepcopy(anchors),
    ):
        assert (found, found.trace) == (edges, trace)


@given(ANCHORS)
def test_anchors_without_a_trace_are_what_they_always_were(edges: dict[int, int]) -> None:
    anchors = Anchors.traced(edges, b"")
    assert type(anchors) is type(Anchors.from_bytes(anchors.to_bytes())) is Anchors
    assert len(anchors.to_bytes()) == 16 * len(edges)
    assert "traceparent" not in anchors.to_json()


def test_the_json_has_the_header_of_w3c() -> None:
    assert json.loads(Anchors.traced({10: 255}, TRACE).to_json()) == {"a": "ff", "traceparent": TRACEPARENT}


@pytest.mark.parametrize("data", [TRACE, TRACE[:9], WORD * 2 + TRACE[1:], WORD * 2 + TRACE + b"\0", WORD + TRACE])
def test_bytes_that_only_look_like_a_trace_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match=r"^Packed anchors are a multiple of 16 bytes, and b.* is not\.$"):
        Anchors.from_bytes(data)


@pytest.mark.parametrize(
    "fields",
    [
        {"traceparent": TRACEPARENT},
        {"1": "2", "traceparent": None},
        {"1": "2", "traceparent": 5},
        {"1": "2", "traceparent": ""},
        {"1": "2", "traceparent": TRACEPARENT.upper()},
        {"1": "2", "traceparent": f"{TRACEPARENT}\n"},
        {"1": "2", "traceparent": f"01{TRACEPARENT[2:]}"},
        {"1": "2", "tracestate": "x"},
    ],
)
def test_json_with_a_malformed_trace_is_refused(fields: Any) -> None:
    with pytest.raises(BadInput, match="is not the JSON of anchors"):
        Anchors.from_json(json.dumps(fields))


@pytest.mark.parametrize("trace", [b"x", TRACE + b"\0"])
def test_a_context_of_another_length_is_refused(trace: bytes) -> None:
    with pytest.raises(BadInput, match=r"^The context of a trace has 25 bytes, and b.* is not: use `trace`\.$"):
        Anchors.traced({1: 2}, trace)
