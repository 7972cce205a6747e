"""The options of `format("redis_acker")`: all of them, each with its check."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redis_acker.errors import BadInput
from redis_acker.spouts.user_streams import stream_names
from redis_acker.store.acker import DEFAULT_NAMESPACE
from redis_acker.store.keys import check_namespace

MAX_PER_TRIGGER = 100_000
"""Entries that one micro-batch has at most, of all streams together."""

ROWS_PER_PARTITION = 10_000
"""Entries that one task reads at most."""

MOST_SHARDS = 1_000

STARTS = ("oldest", "newest")
RELEASES = ("never", "committed", "finished")
VIEWS = ("pending", "failed", "dead", "stats")

_SPARKS = re.compile(r"checkpointlocation|queryname|path|spark\..*|__.*", re.IGNORECASE)
"""Options of Spark's own, which it passes on."""


@dataclass(frozen=True)
class SourceOptions:
    """How streams are read."""

    stream: str
    shards: int = 1
    start: str = "oldest"
    """Where a query without a checkpoint begins: with the oldest entry, or behind the newest."""
    max_per_trigger: int = MAX_PER_TRIGGER
    max_pending: int | None = None
    """Most entries that are delivered and not finished."""
    release: str = "never"
    """When entries are deleted: when Spark has committed their batch, when they are finished too, or never."""
    missing: str = "fail"
    """What happens when entries that were not read are gone: the query fails, or it counts them and goes on."""
    rows_per_partition: int = ROWS_PER_PARTITION

    def __post_init__(self) -> None:
        if self.max_pending is not None and self.release != "finished":
            raise BadInput(
                "max_pending counts entries that are not finished, so it needs release=finished and a "
                "RedisStreamSource that is told which are."
            )
        if self.start == "newest" and (self.release == "committed" or self.max_pending is not None):
            what = "max_pending counts" if self.release == "finished" else "release=committed deletes"
            raise BadInput(
                f"{what} all entries up to those that were read, also older ones that were not: use start=oldest."
            )

    @property
    def names(self) -> list[str]:
        return stream_names(self.stream, self.shards)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SourceOptions:
        found = _Options(options, "a stream that is read")
        made = cls(
            found.text("stream"),
            found.number("shards", 1, most=MOST_SHARDS),
            found.choice("start", STARTS, "oldest"),
            found.number("max_per_trigger", MAX_PER_TRIGGER),
            found.number("max_pending", 0) or None,
            found.choice("release", RELEASES, "never"),
            found.choice("missing", ("fail", "skip"), "fail"),
            found.number("rows_per_partition", ROWS_PER_PARTITION),
        )
        found.check_rest()
        return made

    def as_options(self) -> dict[str, str]:
        return {name: str(value) for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class SinkOptions:
    """How streams are written."""

    stream: str
    shards: int = 1
    key: str | None = None
    """Rows with the same value in this column go to the same stream; without it they are dealt out in turn."""

    @property
    def names(self) -> list[str]:
        return stream_names(self.stream, self.shards)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        found = _Options(options, "a stream that is written")
        made = cls(found.text("stream"), found.number("shards", 1, most=MOST_SHARDS), found.optional("key"))
        found.check_rest()
        return made


@dataclass(frozen=True)
class ViewOptions:
    """What of a namespace is read."""

    view: str
    namespace: str = DEFAULT_NAMESPACE
    spout: str | None = None
    min_age_ms: int = 0

    @classmethod
    def read(cls, options: Mapping[str, str]) -> ViewOptions:
        found = _Options(options, "a view")
        made = cls(
            found.choice("view", VIEWS),
            check_namespace(found.optional("namespace") or DEFAULT_NAMESPACE),
            found.optional("spout"),
            found.number("min_age_ms", 0, least=0),
        )
        found.check_rest()
        if made.view == "stats" and made.min_age_ms:
            raise BadInput("The option 'min_age_ms' is for the views pending, failed and dead: counters have no age.")
        return made


class _Options:
    """Takes options one by one, so that what is left over at the end is a mistake."""

    def __init__(self, options: Mapping[str, str], what: str) -> None:
        self._left = {name.lower(): value for name, value in options.items() if not _SPARKS.fullmatch(name)}
        self._left.pop("url", None)  # address.py reads it
        self._what, self._known = what, ["url"]

    def text(self, name: str) -> str:
        found = self.optional(name)
        if not found:
            raise BadInput(f'The option {name!r} is missing: format("redis_acker") needs it for {self._what}.')
        return found

    def optional(self, name: str) -> str | None:
        self._known.append(name)
        return self._left.pop(name, None)

    def number(self, name: str, default: int, *, least: int = 1, most: int = 2**53) -> int:
        found = self.optional(name)
        if found is None:
            return default
        if not re.fullmatch(r"[0-9]{1,16}", found) or not least <= int(found) <= most:
            raise BadInput(f"The option {name!r} is a whole number from {least} to {most}, not {found!r}.")
        return int(found)

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        found = self.text(name) if default is None else self.optional(name) or default
        if found not in choices:
            raise BadInput(f"The option {name!r} is one of {', '.join(choices)}, not {found!r}.")
        return found

    def check_rest(self) -> None:
        if self._left:
            raise BadInput(
                f"There is no option {min(self._left)!r} for {self._what}: there are {', '.join(sorted(self._known))}."
            )
