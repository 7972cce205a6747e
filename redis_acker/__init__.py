"""redis-acker: knows when the whole tree of work behind a message is done."""

import pkgutil
import re
from importlib import import_module

# A name is imported at its first use: a probe of the command line must not wait for numpy, a bolt not for the driver.
_PLACES = {
    name: module
    for module, name in re.findall(
        r"^from (\S+) import (\w+)", (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode(), re.MULTILINE
    )
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
