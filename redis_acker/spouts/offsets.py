"""Which messages of a Kafka partition are finished, in a form that a commit can carry."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from redis_acker.spouts.checkpoint import Ranges

MOST_CHARACTERS = 4000
"""Kafka takes 4,096 bytes of metadata with a commit, unless its operator says otherwise."""

_VERSION = "acker1"
_GAPS = re.compile(rf"{_VERSION}((?: \d{{1,18}}\+\d{{1,18}})*)")

log = logging.getLogger(__name__)


class FinishedOffsets:
    """The finished offsets of one partition: all before the first unfinished one, and ranges beyond it."""

    def __init__(self, start: int) -> None:
        """start: nothing from there on is finished."""
        self._ranges = Ranges([(-1, start)])

    @classmethod
    def from_text(cls, start: int, text: str) -> FinishedOffsets:
        """As it was committed: an offset, and what to_text() gave with it. Foreign metadata is ignored."""
        found = cls(start)
        if match := _GAPS.fullmatch(text):
            at = start
            for part in match[1].split():
                gap, length = map(int, part.split("+"))
                found._ranges.add(at + gap, at + gap + length)
                at += gap + length
        elif text:
            log.warning("A commit at offset %d has the metadata of another program, which is ignored.", start)
        return found

    @property
    def first_unfinished(self) -> int:
        return self._ranges.end_of(-1) or 0

    def add(self, offset: int) -> None:
        """Adds an offset that is not finished yet."""
        self._ranges.add(offset, offset + 1)

    def __contains__(self, offset: int) -> bool:
        return offset in self._ranges

    def to_text(self) -> str:
        """The ranges beyond the first unfinished offset, each as a gap and a length, as many as there is room for."""
        text = _VERSION
        for part in self._parts():
            if len(text) + len(part) >= MOST_CHARACTERS:
                break
            text += f" {part}"
        return text

    def _parts(self) -> Iterator[str]:
        at = self.first_unfinished
        for start, end in self._ranges.to_list()[1:]:
            yield f"{start - at}+{end - start}"
            at = end
