"""The errors this package raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis_acker.tokens import Token


class AckerError(Exception):
    """The base of every error this package raises."""

    token: Token | None = None
    """The token of the batch that failed: sending the batch again with it applies nothing twice."""


class BadInput(AckerError):
    """Raised when an argument cannot be what was meant; nothing has been sent."""


class ServerUnavailable(AckerError):
    """Raised when no server can be found, started or reached, or it does not answer in time."""


class AccessDenied(AckerError):
    """Raised when the server refuses the user, the password or a command."""


class MemoryFull(AckerError):
    """Raised when the server's memory is full and it refuses new roots."""


class WrongKeyType(AckerError):
    """Raised when a key of ours holds something that another program put there."""


class StoreLost(AckerError):
    """Raised when the server has lost what the namespace held, its settings too."""


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
