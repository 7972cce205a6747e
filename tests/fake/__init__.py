"""fakeredis with what it lacks: of Redis's Lua `bit`, `struct` and `redis.set_repl`, and the NOGROUP error."""

from functools import cache
from pathlib import Path

import fakeredis
from fakeredis import _msgs

LUA_DIRECTORY = Path(__file__).parent / "lua"

#: The Redis whose answers fakeredis imitates.
VERSION = (7, 0)

# It answers an XREADGROUP from a missing stream with an error of XGROUP, and only XREADGROUP is used here.
_msgs.XGROUP_KEY_NOT_FOUND_MSG = "NOGROUP No such key or consumer group in XREADGROUP with GROUP option"


@cache
def prelude() -> str:
    def text(name: str) -> str:
        return (LUA_DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")

    # The line breaks keep a closing comment from swallowing the code after it.
    return (
        text("prelude")
        .replace("(function() %BIT% end)", f"(function()\n{text('bit')}\nend)")
        .replace("(function() %STRUCT% end)", f"(function()\n{text('struct')}\nend)")
    )


def fake_redis() -> fakeredis.FakeRedis:
    """A client of a fresh fake server of its own, on which the project's scripts run."""
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=VERSION))
    client.eval(prelude(), 0)
    client.script_flush()
    return client
