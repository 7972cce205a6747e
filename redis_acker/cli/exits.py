"""How a command ends: documented exit codes, and one line on standard error instead of a traceback."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from redis_acker.errors import (
    AccessDenied,
    AckerError,
    BadInput,
    NotFound,
    ServerUnavailable,
    UnknownNamespace,
    UnknownSpout,
    escaped,
)

PROBLEM = 1
"""Something is wrong: an error of the store, or a check that found something bad."""
USAGE = 2
"""The command line makes no sense: an unknown option, an invalid URL or root."""
UNREACHABLE = 3
"""A server cannot be reached, or refuses the user, the password or a command."""
NOT_FOUND = 4
"""The root, spout, message or namespace is unknown."""
INTERRUPTED = 130
"""Ctrl-C: 128 plus the number of SIGINT, as in shells."""
BROKEN_PIPE = 141
"""The reader of a pipe went away, as `head` does: 128 plus the number of SIGPIPE. Nothing is printed."""

_CODES: list[tuple[type[AckerError], int]] = [
    (NotFound, NOT_FOUND),
    (UnknownNamespace, NOT_FOUND),
    (UnknownSpout, NOT_FOUND),
    (ServerUnavailable, UNREACHABLE),
    (AccessDenied, UNREACHABLE),
    (BadInput, USAGE),
]


def code_of(error: AckerError) -> int:
    """The exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), PROBLEM)


class Ended(click.ClickException):
    """Why a command ended, as click shows it: `Error: ` and a sentence, on one line."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(escaped(" ".join(text.split())))
        self._code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self._code


@contextmanager
def explained() -> Iterator[None]:
    """Turns what ends a command early into a line for people and an exit code for programs."""
    warnings.showwarning = _show_warning
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # notices a broken pipe here, not when Python exits
    except AckerError as error:
        raise Ended(str(error), code_of(error)) from error
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # shows the help; older releases of click do not have it
            raise
        raise Ended(f"{error.format_message()}{_where_to_look(error)}", USAGE) from error
    except BrokenPipeError:
        _stop_writing()
        raise click.exceptions.Exit(BROKEN_PIPE) from None
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def _where_to_look(error: click.UsageError) -> str:
    return f" See {error.ctx.command_path} --help." if error.ctx else ""


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    click.echo(escaped(f"Warning: {message}"), err=True)


def _stop_writing() -> None:
    """Python flushes its buffer when it exits, and would complain about the pipe again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
