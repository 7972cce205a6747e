"""A bad argument gets one clear error, with the value and what to do, and changes nothing."""

import re
from collections.abc import Callable
from typing import Any

import fakeredis
import numpy as np
import pytest

from redis_acker import Acker, Acks, Fails, Inits, Token, new_edges
from redis_acker.errors import BadInput
from redis_acker.store.transport import Transport
from redis_acker.testing import fake_redis
from tests.clock import Clock

SPOUT = "orders"
SIZE = 5


class Table:
    """An acker with a block that is allocated, and one that is pending."""

    def __init__(self, acker: Acker) -> None:
        self.acker = acker
        self.fresh = acker.allocate(SPOUT, SIZE)
        self.pending = acker.allocate(SPOUT, SIZE)
        acker.init(self.pending, new_edges(SIZE))

    def init(self, **options: Any) -> object:
        return self.acker.init(self.fresh, new_edges(SIZE), **options)

    def ids(self, *ids: Any) -> object:
        return self.init(message_ids=list(ids))


Call = Callable[[Table], object]

INTEGERS: dict[str, tuple[Any, str]] = {
    "too large": (2**64, "18446744073709551616"),
    "too small": (-(2**63) - 1, "-9223372036854775809"),
    "too large in a list": ([1, 2**64], "18446744073709551616"),
    "a float": (1.5, "1.5"),
    "a float in a list": ([1, 2.0], "2.0"),
    "not a number": ([float("nan")], "nan"),
    "a text": ("12", "'12'"),
    "a text in a list": (["12"], "'12'"),
    "bytes": (b"12", "b'12'"),
    "a bool": (True, "True"),
    "a bool in a list": ([1, False], "False"),
    "none": (None, "None"),
    "none in a list": ([None], "None"),
    "a set": ({1}, r"\{1\}"),
    "a long text": ("x" * 10_000, "'xxx"),
    "a list of lists": ([[1, 2]], r"\[1, 2\]"),
    "a table": (np.zeros((2, 2), dtype=np.uint64), r"\(2, 2\)"),
    "an array of floats": (np.array([1.0]), "float64"),
    "an array of bools": (np.array([True]), "bool"),
    "an array of texts": (np.array(["1"]), "<U1"),
}

ROOT_CALLS: dict[str, Callable[[Acker, Any], object]] = {
    "init": lambda acker, value: acker.init(value, [1]),
    "ack": lambda acker, value: acker.ack(value, [1]),
    "fail": lambda acker, value: acker.fail(value),
    "extend": lambda acker, value: acker.extend(value),
    "inspect": lambda acker, value: acker.inspect(value),
}
VAL_CALLS: dict[str, Callable[[Acker, Any], object]] = {
    "init": lambda acker, value: acker.init([1], value),
    "ack": lambda acker, value: acker.ack([1], value),
}

CALLS: dict[str, tuple[Call, str]] = {
    # Lengths and blocks.
    "fewer ack vals than roots": (lambda t: t.acker.ack([1, 2], [1]), "2 roots, 1 ack vals"),
    "more ack vals than roots": (lambda t: t.acker.init(t.fresh, new_edges(6)), "5 roots, 6 ack vals"),
    "one ack val for all": (lambda t: t.acker.init(t.fresh, 7), "5 roots, 1 ack vals"),
    "a root twice": (lambda t: t.acker.init([*t.fresh[:3].tolist(), int(t.fresh[2])], [1, 2, 3, 4]), "ascending"),
    "roots in another order": (lambda t: t.acker.init(t.fresh[::-1], new_edges(SIZE)), "ascending"),
    "a block without its first root": (lambda t: t.acker.init(t.fresh[1:], new_edges(4)), "not whole"),
    "a block with a hole": (lambda t: t.acker.init(t.fresh[[0, 1, 3]], new_edges(3)), "not whole"),
    "a block larger than blocks are": (
        lambda t: t.acker.init(np.arange(600, dtype=np.uint64), new_edges(600)),
        "outside a block of 500",
    ),
    "an ack val of zero": (lambda t: t.acker.init(t.fresh, [1, 2, 0, 4, 5]), r"ack val 0.*new_edges\(\)"),
    # Message ids and attempts.
    "fewer ids than roots": (lambda t: t.ids("a"), "5 roots, 1 ids"),
    "more ids than roots": (lambda t: t.ids(*"abcdef"), "5 roots, 6 ids"),
    "an array of fewer ids": (lambda t: t.init(message_ids=np.arange(4)), "5 roots, 4 ids"),
    "one text for all ids": (lambda t: t.init(message_ids="abcde"), "'abcde'"),
    "one long text for all ids": (lambda t: t.init(message_ids="x" * 10_000), "'xxx"),
    "ids without a length": (lambda t: t.init(message_ids=iter("abcde")), "one id for each root"),
    "ids without an order": (lambda t: t.init(message_ids=set("abcde")), "one id for each root"),
    "ids in a mapping": (lambda t: t.init(message_ids=dict.fromkeys("abcde", 1)), "one id for each root"),
    "ids of two kinds": (lambda t: t.ids("a", "b", b"c", "d", "e"), "bytes, str: convert"),
    "ids that are none": (lambda t: t.ids(None, None, None, None, None), "NoneType"),
    "ids that are floats": (lambda t: t.ids(1.0, 2.0, 3.0, 4.0, 5.0), "float"),
    "ids that are bools": (lambda t: t.ids(True, True, True, True, True), "bool"),
    "ids that are objects": (lambda t: t.ids(*[{}] * 5), "dict"),
    "an id that is too long": (lambda t: t.ids("a", "b", "c", "d", "é" * 513), "1026 bytes.*limit of 1024"),
    "an id of too many bytes": (lambda t: t.ids(*[b"x" * 1025] * 5), "1025 bytes.*limit of 1024"),
    "an id that is no valid text": (lambda t: t.ids("a", "b", "c", "d", "\ud800"), r"ud800.*bytes"),
    "an integer id that is too large": (lambda t: t.ids(1, 2, 3, 4, 2**63), "64-bit.*as text"),
    "an integer id that is too small": (lambda t: t.ids(1, 2, 3, 4, -(2**63) - 1), "64-bit.*as text"),
    "an array of ids too large": (lambda t: t.init(message_ids=np.full(5, 2**63, dtype=np.uint64)), "64-bit.*as text"),
    "an array of float ids": (lambda t: t.init(message_ids=np.zeros(5)), "float64"),
    "a table of ids": (lambda t: t.init(message_ids=np.zeros((5, 2), dtype=int)), r"\(5, 2\)"),
    "an array without length": (lambda t: t.init(message_ids=np.array(5)), r"shape \(\)"),
    "attempt 0": (lambda t: t.init(attempts=0), "1 to 65534, not 0"),
    "attempt 70000": (lambda t: t.init(attempts=70_000), "not 70000"),
    "an attempt that is 65535": (lambda t: t.init(attempts=65_535), "not 65535"),
    "an attempt below zero": (lambda t: t.init(attempts=[1, 2, -3, 4, 5]), "not -3"),
    "an attempt that is a float": (lambda t: t.init(attempts=1.5), "1.5"),
    "attempts that are floats": (lambda t: t.init(attempts=[1.5] * 5), "not 1.5"),
    "an attempt that is a bool": (lambda t: t.init(attempts=True), "True"),
    "an attempt that is a text": (lambda t: t.init(attempts="3"), "'3'"),
    "no attempt": (lambda t: t.init(attempts=None), "None"),
    "fewer attempts than roots": (lambda t: t.init(attempts=[1, 2]), "5 roots, 2 attempts"),
    # Tokens.
    "an empty token": (lambda t: t.acker.ack(t.pending, new_edges(5), token=""), "not empty, not ''"),
    "an empty token of bytes": (lambda t: t.acker.ack(t.pending, new_edges(5), token=b""), "not empty"),
    "a number as token": (lambda t: t.acker.ack(t.pending, new_edges(5), token=5), "not 5"),  # type: ignore[arg-type]
    "a token with a short name": (lambda t: Token(b"short", 1), "b'short'"),
    # Fails.
    "a component that is no text": (lambda t: t.acker.fail(t.pending, component=b"x"), "component.*b'x'"),  # type: ignore[arg-type]
    "an error that is no text": (lambda t: t.acker.fail(t.pending, error=ValueError("x")), "error.*ValueError"),  # type: ignore[arg-type]
    # Spouts and counts.
    "an empty spout": (lambda t: t.acker.allocate(""), "1 to 255 bytes, not ''"),
    "a long spout": (lambda t: t.acker.allocate("é" * 128), "1 to 255 bytes"),
    "a very long spout": (lambda t: t.acker.allocate("x" * 10_000), "not 'xxx"),
    "a spout that is no text": (lambda t: t.acker.allocate(5), "not 5"),  # type: ignore[arg-type]
    "a spout that is no valid text": (lambda t: t.acker.allocate("\ud800"), "ud800"),
    "a spout to be read that is no text": (lambda t: t.acker.completions(None), "not None"),  # type: ignore[arg-type]
    "a negative count": (lambda t: t.acker.allocate(SPOUT, -1), "not -1"),
    "a count that is a float": (lambda t: t.acker.allocate(SPOUT, 2.0), "not 2.0"),  # type: ignore[arg-type]
    "a count that is a bool": (lambda t: t.acker.allocate(SPOUT, True), "not True"),
    "a count beyond all roots": (lambda t: t.acker.allocate(SPOUT, 2**42), "2\\*\\*32"),
    "a negative count of edges": (lambda t: new_edges(-1), "not -1"),
    # Looking.
    "several roots to inspect": (lambda t: t.acker.inspect([1, 2]), r"\[1, 2\]"),  # type: ignore[arg-type]
    "no root to inspect": (lambda t: t.acker.inspect([]), r"\[\]"),  # type: ignore[arg-type]
}

SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no shards": ({"shards": 0}, "shards must be a whole number from 1 to 16384, not 0"),
    "too many shards": ({"shards": 16_385}, "not 16385"),
    "shards that are a float": ({"shards": 2.0}, "not 2.0"),
    "shards that are a bool": ({"shards": True}, "not True"),
    "one bucket": ({"buckets": 1}, "buckets must be a whole number from 2 to 64, not 1"),
    "too many buckets": ({"buckets": 65}, "not 65"),
    "no timeout": ({"timeout_ms": 0}, "timeout_ms must be a whole number from 1"),
    "a negative timeout": ({"timeout_ms": -5}, "not -5"),
    "a timeout that is a text": ({"timeout_ms": "30"}, "not '30'"),
    "a block too large": ({"block_size": 2000}, "block_size must be a whole number from 1 to 1024, not 2000"),
    "an empty block": ({"block_size": 0}, "not 0"),
    "a restart that is a text": ({"ack_restarts_clock": "no"}, "True or False, not 'no'"),
    "a negative patience": ({"retry_for_s": -1}, "not -1"),
    "a patience that is a text": ({"retry_for_s": "10"}, "not '10'"),
    "an empty namespace": ({"namespace": ""}, "not '': choose another"),
    "a long namespace": ({"namespace": "x" * 10_000}, "choose another"),
    "a namespace with a brace": ({"namespace": "a}b"}, "not 'a}b': choose"),
    "a namespace that is none": ({"namespace": None}, "not None: choose"),
}


@pytest.fixture
def server() -> fakeredis.FakeRedis:
    return fake_redis()


@pytest.fixture
def table(server: fakeredis.FakeRedis, namespace: str, clock: Clock) -> Table:
    return Table(Acker(server, namespace=namespace, clock=clock))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Whatever is sent to a server from now on."""
    commands: list[object] = []
    attempt = Transport._attempt

    def note(self: Transport, work: Any) -> Any:
        trouble = attempt(self, work)
        commands.extend(work.commands)
        return trouble

    monkeypatch.setattr(Transport, "_attempt", note)
    return commands


def assert_clear(message: str, pattern: str) -> None:
    """One sentence or two, that end, and no more."""
    assert re.search(pattern, message), message
    assert re.match(r"[A-Z_a-z]", message), message
    assert message.endswith("."), message
    assert len(re.findall(r"[.:] [A-Z]", message)) <= 1, message
    assert len(message) < 250, message
    assert "\n" not in message
    assert "Traceback" not in message


def assert_refused(call: Callable[[], object], pattern: str, sent: list[object]) -> None:
    del sent[:]
    with pytest.raises(BadInput) as caught:
        call()
    assert type(caught.value) is BadInput
    assert_clear(str(caught.value), pattern)
    assert sent == []


@pytest.mark.parametrize("kind", INTEGERS)
def test_what_is_no_64_bit_integer_is_refused_as_root_and_as_ack_val(
    table: Table, sent: list[object], kind: str
) -> None:
    value, pattern = INTEGERS[kind]
    for call in ROOT_CALLS.values():
        assert_refused(lambda call=call: call(table.acker, value), f"root.*{pattern}", sent)  # type: ignore[misc]
    for call in VAL_CALLS.values():
        assert_refused(lambda call=call: call(table.acker, value), f"ack_vals.*{pattern}", sent)  # type: ignore[misc]


@pytest.mark.parametrize("kind", CALLS)
def test_a_bad_argument_is_refused_before_anything_is_sent(table: Table, sent: list[object], kind: str) -> None:
    call, pattern = CALLS[kind]
    assert_refused(lambda: call(table), pattern, sent)
    assert table.acker.pending_count() == SIZE
    assert table.init() == Inits(SIZE, 0, 0, 0)


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_bad_setting_is_refused_before_anything_is_sent(
    server: fakeredis.FakeRedis, namespace: str, sent: list[object], kind: str
) -> None:
    options, pattern = SETTINGS[kind]
    assert_refused(lambda: Acker(server, **{"namespace": namespace, **options}), pattern, sent)
    assert list(server.scan_iter()) == []


@pytest.mark.parametrize("nothing", [[], (), np.array([], dtype=np.uint64), np.array([], dtype=np.int64)])
def test_an_empty_batch_sends_nothing(table: Table, sent: list[object], nothing: Any) -> None:
    acker = table.acker
    assert acker.init(nothing, nothing) == Inits(0, 0, 0, 0)
    assert acker.init(nothing, nothing, message_ids=nothing, attempts=[]) == Inits(0, 0, 0, 0)
    assert acker.ack(nothing, nothing) == acker.ack(nothing, nothing, token="batch") == Acks(0, 0, 0, 0)
    assert acker.fail(nothing) == Fails(0, 0, 0)
    assert acker.extend(nothing) == 0
    assert acker.allocate(SPOUT, 0).tolist() == []
    assert sent == []


def test_a_bad_part_keeps_the_whole_call_from_being_sent(table: Table, sent: list[object]) -> None:
    """Many blocks, which go in many calls: the last of them is wrong."""
    roots = table.acker.allocate(SPOUT, 20_000)
    ids = [f"{i}" for i in range(20_000)]
    for wrong in ("x" * 1025, "\ud800"):
        ids[-1] = wrong
        assert_refused(lambda: table.acker.init(roots, new_edges(20_000), message_ids=ids), "message id", sent)
    with pytest.raises(BadInput):
        table.acker.init([*roots[:-1].tolist(), int(roots[-1]) + 5], new_edges(20_000))
    assert sent == []
    assert table.acker.pending_count() == SIZE


def test_a_namespace_with_all_spouts_taken_refuses_another(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redis_acker.store.spouts.MAX_SPOUT", 2)
    table.acker.allocate("second")
    before = table.acker.spout_names()
    with pytest.raises(BadInput) as caught:
        table.acker.allocate("third")
    assert_clear(str(caught.value), "2 spouts already, so 'third'")
    assert table.acker.spout_names() == before
    assert sorted(before.values()) == sorted([SPOUT, "second"])
