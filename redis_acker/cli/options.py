"""What commands have in common: how they name the store, choose failures, and take roots and durations."""

from __future__ import annotations

import functools
import re
import reprlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from redis_acker.cli.output import Output
from redis_acker.errors import BadInput
from redis_acker.store.keys import check_namespace
from redis_acker.views.texts import root_of

if TYPE_CHECKING:
    from redis_acker.retries.withdrawals import Choice
    from redis_acker.store.acker import Acker

    IntType = click.ParamType[int]
else:
    IntType = click.ParamType  # takes no type argument in older releases of click

URL_VARIABLE = "REDIS_ACKER_URL"
"""Repeated here because store/connect.py, which reads it, takes long to import."""

NAMESPACE_VARIABLE = "REDIS_ACKER_NAMESPACE"

PATIENCE_S = 2.0
"""How long a command tries to reach a server: a person is waiting."""

AT_ONCE = 500
"""Roots written or replayed together."""

MOST = 1 << 60
"""The largest number that an option takes: more than there are roots."""

T = TypeVar("T")


# -- the store -------------------------------------------------------------------------------------------------------


class Store:
    """The servers and the namespace that the command line names. Opened at first use, and never created."""

    def __init__(self, urls: Sequence[str], namespace: str, out: Output) -> None:
        self.urls = urls
        self.namespace = check_namespace(namespace)
        self.out = out
        self._acker: Acker | None = None

    @property
    def target(self) -> str | list[str] | None:
        """The URLs given; None for those in the environment."""
        if len(self.urls) > 1:
            return list(self.urls)
        return self.urls[0] if self.urls else None

    @property
    def acker(self) -> Acker:
        """Raises UnknownNamespace if the namespace does not exist: a misspelt name must not create one."""
        if self._acker is None:
            from redis_acker.store.acker import Acker

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
        help=f"The server; repeat for several, always in the same order.  [env: {URL_VARIABLE}]",
    )
    @click.option(
        "--namespace",
        "-n",
        default="default",
        metavar="NAME",
        envvar=NAMESPACE_VARIABLE,
        help=f"The namespace.  [env: {NAMESPACE_VARIABLE}; default: default]",
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


# -- failures --------------------------------------------------------------------------------------------------------


class RateType(click.FloatRange):
    """A number per second."""

    name = "rate"

    def __init__(self) -> None:
        super().__init__(0, 1e12, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        rate = super().convert(value, param, ctx)
        if rate != rate:
            self.fail("nan is not a number per second.", param, ctx)
        return float(rate)


RATE = RateType()


@dataclass(frozen=True)
class Failures:
    """Which failures a command withdraws, and how fast."""

    spout: str | None = None
    reason: str | None = None
    older_than_ms: int = 0
    limit: int | None = None
    rate: float | None = None
    _: KW_ONLY
    force: bool = False
    take_over: bool = False

    @property
    def are_chosen(self) -> bool:
        """Whether an option chooses among the failures in the store."""
        return bool(self.spout or self.reason or self.older_than_ms or self.force or self.take_over)

    def choice(self, *, with_ids: bool = False) -> Choice:
        from redis_acker.retries.withdrawals import Choice

        return Choice(self.spout, self.reason, self.older_than_ms, self.limit, with_ids)


def failure_options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --limit, --rate, --spout, --reason, --older-than, --force and --take-over to a command, which gets them as
    its argument `wanted`."""

    @click.option(
        "--limit",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="Stop after N roots; what failed together stays together.",
    )
    @click.option("--rate", type=RATE, metavar="N", help="At most N roots per second.")
    @click.option("--spout", metavar="NAME", help="Only this spout.")
    @click.option("--reason", type=click.Choice(["failed", "timeout"]), help="Only failures for this reason.")
    @click.option(
        "--older-than", type=DURATION, default=0, metavar="AGE", help="Only what failed this long ago: 90s, 5m, 2h."
    )
    @click.option("--force", is_flag=True, help="Include spouts with a running driver: what it has not read.")
    @click.option("--take-over", is_flag=True, help="Include what unfinished drains hold, see above.")
    @functools.wraps(command)
    def with_failures(
        *args: Any,
        limit: int | None,
        rate: float | None,
        spout: str | None,
        reason: str | None,
        older_than: int,
        force: bool,
        take_over: bool,
        **rest: Any,
    ) -> T:
        wanted = Failures(spout, reason, older_than, limit, rate, force=force, take_over=take_over)
        return command(*args, wanted=wanted, **rest)

    return with_failures


class RateLimit:
    """Waits, so that no more than so many roots per second pass."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._free_at_s = time.monotonic()

    def parts(self, roots: Iterable[T]) -> Iterator[list[T]]:
        """The roots in parts, each when its turn has come, and none larger than what passes in about a second."""
        rest = iter(roots)
        most = AT_ONCE if self._rate is None else max(1, min(AT_ONCE, int(self._rate)))
        while part := list(islice(rest, most)):
            self._wait(len(part))
            yield part

    def _wait(self, amount: int) -> None:
        if self._rate is None:
            return
        now_s = time.monotonic()
        if self._free_at_s > now_s:
            time.sleep(self._free_at_s - now_s)
        self._free_at_s = max(self._free_at_s, now_s) + amount / self._rate


# -- roots and durations ---------------------------------------------------------------------------------------------


class RootType(IntType):
    """A root: decimal, 0x and hex digits, 16 bare hex digits, or a signed decimal for the same 64 bits."""

    name = "root"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return root_of(str(value))
        except BadInput as error:
            self.fail(str(error), param, ctx)


class RootCommand(click.Command):
    """A command with roots as arguments: accepts the root -5 where click would see an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with_value = {name for one in self.params if not getattr(one, "is_flag", False) for name in one.opts}
        parsed = [
            str(int(arg) & 0xFFFF_FFFF_FFFF_FFFF)
            if re.fullmatch(r"-[0-9]{1,19}", arg) and int(arg) >= -(1 << 63) and before not in with_value
            else arg
            for before, arg in zip(["", *args], args, strict=False)
        ]
        return super().parse_args(ctx, parsed)


_UNITS_MS = {"": 1000, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


_LONGEST_MS = 3650 * _UNITS_MS["d"]


class DurationType(IntType):
    """A duration in ms: "90s", "5m", "2h", "1d", "250ms"; a plain number is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(ms|s|m|h|d|)", str(value).strip())
        ms = round(float(found[1]) * _UNITS_MS[found[2]]) if found else _LONGEST_MS + 1
        if ms > _LONGEST_MS:
            text = reprlib.repr(value)
            self.fail(f"{text} is not a duration: use for example 90s, 5m, 2h or plain seconds.", param, ctx)
        return ms


ROOT = RootType()
DURATION = DurationType()
