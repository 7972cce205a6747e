"""What commands have in common: how they name the store, and how they take roots and durations."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from redis_acker.cli.output import Output

if TYPE_CHECKING:
    from redis_acker.acker import Acker

    IntType = click.ParamType[int]
else:
    IntType = click.ParamType  # takes no type argument in older releases of click

URL_VARIABLE = "REDIS_ACKER_URL"
"""Spelt here too: connect.py, which reads it, takes long to import."""

NAMESPACE_VARIABLE = "REDIS_ACKER_NAMESPACE"

PATIENCE_S = 2.0
"""How long a command tries to reach a server before it says that it cannot: a person is waiting."""

T = TypeVar("T")


class Store:
    """The servers and the namespace that the command line names, opened at first use and never created."""

    def __init__(self, urls: Sequence[str], namespace: str, out: Output) -> None:
        self.urls = urls
        self.namespace = namespace
        self.out = out
        self._acker: Acker | None = None

    @property
    def target(self) -> str | list[str] | None:
        """What connects to the servers: the URLs given, or None for those of the environment."""
        if len(self.urls) > 1:
            return list(self.urls)
        return self.urls[0] if self.urls else None

    @property
    def acker(self) -> Acker:
        """Raises UnknownNamespace where the namespace does not exist: a misspelt name must not make one."""
        if self._acker is None:
            from redis_acker.acker import Acker

            self._acker = Acker(self.target, namespace=self.namespace, create=False, retry_for_s=PATIENCE_S)
        return self._acker

    def close(self) -> None:
        if self._acker is not None:
            self._acker.close()


def store_options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --url, --namespace and --json to a command, which gets a Store as its first argument.

    Put it below the command's own options: help lists them in this order.
    """

    @click.option(
        "--url",
        "urls",
        multiple=True,
        metavar="URL",
        help=f"The server; repeat it for several, in their order.  [env: {URL_VARIABLE}]",
    )
    @click.option(
        "--namespace",
        "-n",
        default="default",
        metavar="NAME",
        envvar=NAMESPACE_VARIABLE,
        help=f"Which roots.  [env: {NAMESPACE_VARIABLE}; default: default]",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for programs; docs/cli.md has the schema.")
    @functools.wraps(command)
    def with_store(*args: Any, urls: tuple[str, ...], namespace: str, as_json: bool, **rest: Any) -> T:
        store = Store(urls, namespace, Output(as_json=as_json))
        try:
            return command(store, *args, **rest)
        finally:
            store.close()

    return with_store


class RootType(IntType):
    """A root: decimal, 0x and hex digits, 16 bare hex digits, or a signed decimal for the same 64 bits."""

    name = "root"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        number = _number(text)
        if number is None:
            self.fail(
                f"{text!r} is not a root: use decimal digits (also signed), 0x and hex digits, or 16 hex digits.",
                param,
                ctx,
            )
        if not -(1 << 63) <= number < 1 << 64:
            self.fail(f"{text!r} is not a root: it does not fit in 64 bits.", param, ctx)
        return number & 0xFFFF_FFFF_FFFF_FFFF


def _number(text: str) -> int | None:
    if re.fullmatch(r"-?[0-9]+", text):  # 16 decimal digits too: a root in hex that has no letter needs its 0x
        return int(text)
    if re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9a-fA-F]{16}", text):
        return int(text, 16)
    return None


_UNITS_MS = {"": 1000, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DurationType(IntType):
    """A duration in ms: "90s", "5m", "2h", "1d", "250ms"; a plain number is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|)", str(value).strip())
        if not found:
            self.fail(f"{value!r} is not a duration: use for example 90s, 5m, 2h or plain seconds.", param, ctx)
        return round(float(found[1]) * _UNITS_MS[found[2]])


ROOT = RootType()
DURATION = DurationType()
AGE = DURATION


class RootCommand(click.Command):
    """A command with roots as arguments: takes -5 for a root where click would see an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with_value = {name for one in self.params if not getattr(one, "is_flag", False) for name in one.opts}
        parsed = [
            str(int(arg) & 0xFFFF_FFFF_FFFF_FFFF)
            if re.fullmatch(r"-[0-9]+", arg) and int(arg) >= -(1 << 63) and before not in with_value
            else arg
            for before, arg in zip(["", *args], args, strict=False)
        ]
        return super().parse_args(ctx, parsed)
