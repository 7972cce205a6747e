"""The names that a piece of Lua declares and those that it finds elsewhere, as Lua's own compiler sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import unpack_from
from typing import Any

from lupa import lua51  # type: ignore[import-untyped]

_COMPILE = b"function(text) return string.dump(assert(loadstring(text))) end"
_HEADER_BYTES = 12
_GETGLOBAL, _SETGLOBAL = 5, 7


@dataclass
class Function:
    """What the compiler says of one function."""

    upvalues: int = 0
    reads: set[str] = field(default_factory=set)
    """Names that it finds nowhere: globals, or what another file declares."""
    writes: set[str] = field(default_factory=set)
    locals: list[str] = field(default_factory=list)
    """Those that are there to its end."""
    inner: list[Function] = field(default_factory=list)

    def all(self) -> Iterator[Function]:
        yield self
        for one in self.inner:
            yield from one.all()


def compile_lua(text: str) -> Function:
    """The file as the function that it is to Lua."""
    runtime: Any = lua51.LuaRuntime(encoding=None)
    return _Dump(runtime.eval(_COMPILE)(text.encode())).function()


def free_names(text: str) -> set[str]:
    return {name for one in compile_lua(text).all() for name in one.reads | one.writes}


def assigned_names(text: str) -> set[str]:
    """The names of other files that a file assigns to."""
    return {name for one in compile_lua(text).all() for name in one.writes}


def declared_names(library: str) -> list[str]:
    """The locals of a library that what comes after it sees."""
    *names, _ = compile_lua(f"{library}\nlocal after_it = nil").locals
    return names


class _Dump:
    """Reads what string.dump() of Lua 5.1 writes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, _HEADER_BYTES

    def function(self) -> Function:
        found = Function()
        self._text()
        self._take("<2i")
        found.upvalues, *_ = self._take("<4B")
        code = self._list("<I")
        constants = [self._constant() for _ in range(self._take("<i")[0])]
        for instruction in code:
            operation, constant = instruction & 0x3F, instruction >> 14
            if operation in (_GETGLOBAL, _SETGLOBAL):
                (found.reads if operation == _GETGLOBAL else found.writes).add(constants[constant])
        found.inner = [self.function() for _ in range(self._take("<i")[0])]
        self._list("<i")
        for _ in range(self._take("<i")[0]):
            name, (_, end) = self._text(), self._take("<2i")
            if end == len(code) - 1:
                found.locals.append(name)
        for _ in range(self._take("<i")[0]):
            self._text()
        return found

    def _constant(self) -> Any:
        kind = self._take("<B")[0]
        if kind == 0:
            return None
        return self._text() if kind == 4 else self._take("<?" if kind == 1 else "<d")[0]

    def _text(self) -> str:
        (size,) = self._take("<Q")
        self._at += size
        return self._data[self._at - size : self._at].rstrip(b"\0").decode(errors="replace")

    def _list(self, one: str) -> list[int]:
        return [self._take(one)[0] for _ in range(self._take("<i")[0])]

    def _take(self, layout: str) -> tuple[Any, ...]:
        found = unpack_from(layout, self._data, self._at)
        self._at += {"<2i": 8, "<4B": 4, "<I": 4, "<i": 4, "<B": 1, "<?": 1, "<d": 8, "<Q": 8}[layout]
        return found
