"""fakeredis with what it lacks: of Redis's Lua `bit`, `struct` and `redis.set_repl`, and the NOGROUP error."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakeredis import FakeRedis

VERSION = (7, 0)
"""The Redis whose answers fakeredis imitates."""


def fake_redis() -> FakeRedis:
    """A client of a fresh fake server of its own, in this process, on which the scripts run."""
    try:
        import fakeredis
        from fakeredis import _msgs
        from fakeredis.commands_mixins import scripting_mixin  # noqa: F401  needs lupa, which fakeredis[lua] brings
    except ImportError:
        raise ImportError("The fake server needs fakeredis: run `pip install 'redis-acker[testing]'`.") from None
    # It answers an XREADGROUP from a missing stream with an error of XGROUP, and only XREADGROUP is used here.
    _msgs.XGROUP_KEY_NOT_FOUND_MSG = "NOGROUP No such key or consumer group in XREADGROUP with GROUP option"
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=VERSION))
    client.eval(prelude(), 0)
    client.script_flush()
    return client


@cache
def prelude() -> str:
    """Makes the Lua of a fake server look like Redis's."""
    # The line breaks keep a closing comment from swallowing the code after it.
    return (
        lua("prelude")
        .replace("(function() %BIT% end)", f"(function()\n{lua('bit')}\nend)")
        .replace("(function() %STRUCT% end)", f"(function()\n{lua('struct_items')}\n{lua('struct')}\nend)")
    )


def lua(name: str) -> str:
    """One of the pieces of Lua that only tests send."""
    return (resources.files("redis_acker.testing") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
