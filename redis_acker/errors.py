"""The errors this package raises, and how it writes down those that other code raises.

May import: nothing.
"""

from __future__ import annotations

import traceback
import unicodedata
from typing import Any


class AckerError(Exception):
    """The base of every error this package raises."""

    token: Any = None
    """The Token of the batch that failed, if there is one: sent again with it, the batch is applied once."""


class BadInput(AckerError):
    """Raised when an argument cannot be what was meant; nothing has been sent."""


class ServerUnavailable(AckerError):
    """Raised when no server can be found, started or reached, or it does not answer in time."""


class ScriptsMissing(ServerUnavailable):
    """Raised when a server has forgotten the scripts, this user may not load them, and nobody else did in time."""


class AccessDenied(AckerError):
    """Raised when the server refuses the user, the password or a command."""


class MemoryFull(AckerError):
    """Raised when the server's memory is full and it refuses new roots."""


class WrongKeyType(AckerError):
    """Raised when a key of ours holds something that another program put there."""


class Unreadable(AckerError):
    """Raised when something in the store is not what this package writes: another program has put it there."""


class EarlyLimit(AckerError):
    """Raised when acks or fails come for more roots without an init than a namespace keeps them for."""


class StoreLost(AckerError):
    """Raised when the server has lost what the namespace held, its settings too."""


class TooLate(AckerError):
    """Raised when an init arrives so late that its roots may be over and forgotten."""


class UnreadableRun(AckerError):
    """Raised when the stored progress of a Spark run is not as this version writes it."""


class SettingsMismatch(AckerError):
    """Raised when a client's settings differ from those stored with the namespace."""


class UnknownNamespace(AckerError):
    """Raised when a namespace that must exist has never been used."""


class UnknownSpout(BadInput):
    """Raised when a spout that must exist has never had a root in this namespace."""


class UnsupportedServer(AckerError):
    """Raised when the server is too old for the scripts."""


class ScriptFailed(AckerError):
    """Raised when a script ends with an error that is none of the above."""


class SpoutTaken(AckerError):
    """Raised when another driver drives the spout, or has taken it over."""

    holder: str = ""
    """Who drives it now."""


class StagedGone(AckerError):
    """Raised when rows that were staged for a Redis Stream are gone before they were appended to it."""


class BadTopology(BadInput):
    """Raised when the components of a topology do not fit together."""


class TupleFinished(AckerError):
    """Raised when a tuple that was acked or failed is acked, failed or anchored to again."""


class FailedTuple(Exception):
    """Raised by your code to fail the tuple or row it works on, with a text that says why. fatal: a replay would fail
    again."""

    fatal = False

    def __init__(self, error: str = "", *, fatal: bool = False) -> None:
        super().__init__(error)
        self.fatal = fatal


class NotFound(AckerError):
    """Raised by a command when what it was asked about is not there."""


class NotInstalled(AckerError):
    """Raised by a command when something it needs is not on this machine."""


class SimulationStuck(AckerError):
    """Raised in a test when simulated time cannot move on, or nothing would happen if it did."""


class EvictionWarning(UserWarning):
    """Issued when the server may throw pending roots away."""


def escaped(text: str) -> str:
    """A text of unknown origin as it may be printed or logged: on one line, without control characters."""
    if text.isascii() and text.isprintable():
        return text  # the usual case: a listing may have millions
    return "".join(one if _is_printable(one) else one.encode("unicode_escape").decode() for one in text)


def _is_printable(one: str) -> bool:
    """False for control characters, changes of text direction, lone surrogates and line separators."""
    return unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def text_of(error: BaseException, *, with_type: bool = True) -> str:
    """What an error says, after the name of its type. An error that cannot be printed has only that name."""
    try:
        return f"{type(error).__name__}: {error}" if with_type else str(error)
    except Exception:
        return type(error).__name__


def traceback_of(error: BaseException) -> str:
    """The traceback of an error, for the log. Given the error itself, a formatter calls its str(), which may raise and
    stop whoever only wanted to log it."""
    lines = "".join(traceback.format_exception(error)).rstrip().split("\n")
    return "\n".join(map(escaped, lines))
