"""Tokens: names by which a second delivery of a batch is recognised."""

import os
import threading

import pytest

from redis_acker import Acker, Token, new_edge
from redis_acker.errors import AckerError, BadInput, ServerUnavailable
from redis_acker.store.ids import Sessions
from redis_acker.store.transport import Transport


def test_a_name_of_any_length_makes_the_same_token_everywhere() -> None:
    """Written down: another release, or another process, must make the same."""
    assert Token.of("run 7, step split") == Token(bytes.fromhex("5a9593e3495985ba"), 0)
    assert Token.of("run 7, step split") == Token.of(b"run 7, step split")
    assert Token.of("run 7, step split").packed() == Token.of("run 7, step split").name + bytes(4)
    assert Token.of("x" * 10_000) != Token.of("x" * 9_999)


def test_text_that_is_no_utf8_makes_a_token_too() -> None:
    assert Token.of("file \udcff") != Token.of("file \udcfe")


@pytest.mark.parametrize(
    ("name", "sequence"), [(b"", 0), (b"1234567", 0), (b"123456789", 0), (b"x" * 8, -1), (b"x" * 8, 2**32)]
)
def test_a_token_that_does_not_fit_its_twelve_bytes_is_refused(name: bytes, sequence: int) -> None:
    with pytest.raises(BadInput, match=r"Token\.of"):
        Token(name, sequence)


def test_a_thread_counts_up_under_one_name() -> None:
    sessions = Sessions()
    tokens = [sessions.next() for _ in range(3)]
    assert {token.name for token in tokens} == {tokens[0].name}
    assert [token.sequence for token in tokens] == [1, 2, 3]


def test_threads_have_names_of_their_own() -> None:
    sessions = Sessions()
    found = [sessions.next()]
    thread = threading.Thread(target=lambda: found.append(sessions.next()))
    thread.start()
    thread.join()
    assert found[0].name != found[1].name
    assert sessions.next().sequence == 2


def test_a_forked_process_has_a_name_of_its_own() -> None:
    sessions = Sessions()
    ours = sessions.next()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, sessions.next().packed())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = os.read(reader, 12)
    assert theirs[:8] != ours.name
    assert sessions.next() == Token(ours.name, 2)


def test_a_session_is_renewed_before_its_sequence_runs_out() -> None:
    sessions = Sessions()
    first = sessions.next()
    sessions._sequence = 2**32 - 1
    assert sessions.next().name != first.name
    assert sessions.next().sequence == 2


def test_a_renewed_session_has_another_name() -> None:
    sessions = Sessions()
    first = sessions.next()
    sessions.renew()
    again = sessions.next()
    assert again.name != first.name
    assert again.sequence == 1


def sent_tokens(acker: Acker, monkeypatch: pytest.MonkeyPatch, *, failing: bool) -> list[bytes]:
    """Tokens of acks from here on, which reach the server or do not."""
    tokens: list[bytes] = []

    def run(self: Transport, commands: object, **options: object) -> list[object]:
        for command in commands:  # type: ignore[attr-defined]
            keys = int(command.args[2])
            tokens.append(command.args[3 + keys + 3])
        if failing:
            raise ServerUnavailable("The server did not answer.")
        return [[1, 0, 0, 0]]

    monkeypatch.setattr(Transport, "run", run)
    return tokens


def test_an_ack_that_failed_tells_its_token_and_the_next_has_another_name(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been applied: under the same name the next one would be taken for its successor."""
    failed = sent_tokens(acker, monkeypatch, failing=True)
    with pytest.raises(AckerError) as caught:
        acker.ack(1, new_edge())
    assert caught.value.token is not None
    assert [caught.value.token.packed()] == failed
    later = sent_tokens(acker, monkeypatch, failing=False)
    acker.ack(1, new_edge())
    acker.ack(1, new_edge(), token=caught.value.token)
    assert later[0][:8] != failed[0][:8]
    assert later[1] == failed[0]
    assert later[0][8:] == (1).to_bytes(4, "big")


def test_an_ack_that_failed_under_a_given_token_tells_that_one(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    sent_tokens(acker, monkeypatch, failing=True)
    with pytest.raises(AckerError) as caught:
        acker.ack(1, new_edge(), token="mine")
    assert caught.value.token == Token.of("mine")
