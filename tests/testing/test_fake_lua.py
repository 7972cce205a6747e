"""The pure-Lua `bit` and `struct` of the fake server answer as those of a real one."""

import random
from typing import Any

import pytest
import redis

from redis_acker.testing import fake_redis
from tests.backends import Servers
from tests.servers import Server

#: Redis's bit library is exact up to here; beyond it, it loses low bits without a word.
LARGEST_BIT_ARGUMENT = 2**51

EDGES = [0, 1, 2, 255, 256, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40 + 1, 2**51]
BYTES = bytes(range(256))

# Numbers reach the client as integers, cut off at the point: written out here, nothing is lost.
SHOW = "local function show(x) if type(x) == 'number' then return string.format('%.17g', x) end return x end\n"


@pytest.fixture(scope="module")
def real(servers: Servers) -> redis.Redis:
    server = servers.get("redis-7.0")
    assert isinstance(server, Server)
    return server.client()


@pytest.fixture(scope="module")
def fake() -> redis.Redis:
    return fake_redis()


def outcome(client: redis.Redis, expression: str, *args: str | bytes) -> Any:
    """All values of a Lua expression, or the fact that it raised."""
    script = f"{SHOW}local t = {{{expression}}} for i = 1, #t do t[i] = show(t[i]) end return t"
    try:
        return client.eval(script, 0, *args)
    except redis.ResponseError:
        return "error"


def integers(generator: random.Random, count: int) -> list[int]:
    sizes = [generator.randint(1, 51) for _ in range(count)]
    found = EDGES + [generator.getrandbits(size) for size in sizes]
    return found + [-value for value in found]


@pytest.mark.parametrize("name", ["band", "bor", "bxor"])
def test_bitwise_operations_agree(real: redis.Redis, fake: redis.Redis, name: str) -> None:
    generator = random.Random(1)
    values = integers(generator, 40)
    for _ in range(150):
        args = generator.choices(values, k=generator.randint(1, 4))
        expression = f"bit.{name}({', '.join(map(str, args))})"
        assert outcome(fake, expression) == outcome(real, expression), expression


@pytest.mark.parametrize("name", ["lshift", "rshift", "arshift"])
def test_shifts_agree_at_every_distance(real: redis.Redis, fake: redis.Redis, name: str) -> None:
    for value in integers(random.Random(2), 5):
        expression = ", ".join(f"bit.{name}({value}, {distance})" for distance in range(34))
        assert outcome(fake, expression) == outcome(real, expression), expression


@pytest.mark.parametrize("name", ["tobit", "bnot"])
def test_one_argument_operations_agree(real: redis.Redis, fake: redis.Redis, name: str) -> None:
    expression = ", ".join(f"bit.{name}({value})" for value in integers(random.Random(3), 60))
    assert outcome(fake, expression) == outcome(real, expression)


@pytest.mark.parametrize("order", [">", "<", ""])
@pytest.mark.parametrize(
    "item",
    ["b", "B", "h", "H", "l", "L", "i", "I", *(f"{letter}{n}" for letter in "iI" for n in range(1, 9))],
)
def test_packed_integers_agree(real: redis.Redis, fake: redis.Redis, order: str, item: str) -> None:
    generator = random.Random(4)
    values = [*integers(generator, 10), 2**53, 2**53 - 1, -(2**53), 2.75, -2.75]
    expression = ", ".join(f"struct.pack('{order}{item}', {value})" for value in values)
    assert outcome(fake, expression) == outcome(real, expression)


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("item", ["B", "H", "I", *(f"{letter}{n}" for letter in "iI" for n in range(1, 7))])
def test_unpacked_integers_agree(real: redis.Redis, fake: redis.Redis, order: str, item: str) -> None:
    generator = random.Random(5)
    for _ in range(10):
        data = generator.randbytes(20)
        position = generator.randint(1, 22)
        expression = f"struct.unpack('{order}{item}{item}', ARGV[1], {position})"
        assert outcome(fake, expression, data) == outcome(real, expression, data), (data, position)


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32, 2**48 + 5, 2**53 - 1, 2**53])
def test_eight_byte_integers_agree_up_to_2_to_the_53(real: redis.Redis, fake: redis.Redis, value: int) -> None:
    data = value.to_bytes(8, "big")
    expression = "struct.unpack('>I8', ARGV[1])"
    assert outcome(fake, expression, data) == outcome(real, expression, data) == [b"%d" % value, b"9"]


@pytest.mark.parametrize(
    "expression",
    [
        "struct.pack('>I2c0', #ARGV[1], ARGV[1])",
        "struct.pack('c5', ARGV[1])",
        "struct.pack('c999', ARGV[1])",
        "struct.pack('s', ARGV[1])",
        "struct.pack('>BxH', 1, 2)",
        "struct.unpack('>I2c0I2', struct.pack('>I2c0I2', #ARGV[1], ARGV[1], 7))",
        "struct.unpack('c7', ARGV[1], 128)",
        "struct.unpack('c256', ARGV[1])",
        "struct.unpack('c257', ARGV[1])",
        "struct.unpack('c0', ARGV[1])",
        "struct.unpack('s', ARGV[1]:sub(2) .. '\\0tail')",
        "struct.unpack('s', ARGV[1]:sub(2))",
        "struct.unpack('>BxB', ARGV[1], 254)",
        "struct.unpack('', ARGV[1])",
        "struct.size('>I5HBc3x')",
        "struct.size('s')",
        "struct.size('c0')",
        "struct.pack('Q', 1)",
        "struct.pack('I4', 'x')",
        "struct.pack('I4')",
        "bit.bxor()",
        "bit.bxor('x', 1)",
    ],
)
def test_strings_and_refusals_agree(real: redis.Redis, fake: redis.Redis, expression: str) -> None:
    assert outcome(fake, expression, BYTES) == outcome(real, expression, BYTES)


COMMANDS = r"""
redis.set_repl(redis.REPL_NONE)
local a, b = KEYS[1], KEYS[2]
redis.call('SETRANGE', a, 3, ARGV[1])
redis.call('APPEND', a, '\0\255')
redis.call('SET', b, string.rep('\170', 100))
redis.set_repl(redis.REPL_ALL)
local replies = { redis.call('BITOP', 'XOR', b, a, b), redis.call('BITPOS', b, 1), redis.call('GET', b) }
redis.call('BITOP', 'XOR', b, b, b)
replies[4] = redis.call('BITPOS', b, 1)
redis.call('HSET', KEYS[3], ARGV[1], ARGV[1])
replies[5] = redis.call('HSCAN', KEYS[3], 0, 'COUNT', 10)
redis.call('RENAME', KEYS[3], KEYS[4])
replies[6] = redis.call('EXISTS', KEYS[3], KEYS[4])
replies[7] = redis.call('XADD', KEYS[5], '1-1', 'data', ARGV[1])
replies[8] = redis.call('XRANGE', KEYS[5], '-', '+')
replies[9] = redis.call('HMGET', KEYS[4], 'none', ARGV[1])
replies[10] = type(redis.pcall('HGET', a, 'x').err)
replies[11] = redis.call('UNLINK', a, b, KEYS[4], KEYS[5])
replies[12] = type(redis.call('TIME')[1])
return replies
"""


def test_the_commands_of_the_scripts_agree(real: redis.Redis, fake: redis.Redis, namespace: str) -> None:
    keys = [f"{{{namespace}}}{i}" for i in range(5)]
    answers = [client.eval(COMMANDS, len(keys), *keys, BYTES) for client in (fake, real)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "script",
    [
        "return misspelt",
        "misspelt = 1",
        "return redis.error_reply('CODE text')",
        "return {err = 'CODE text'}",
    ],
)
def test_what_redis_refuses_is_refused(real: redis.Redis, fake: redis.Redis, script: str) -> None:
    for client in (fake, real):
        with pytest.raises(redis.ResponseError):
            client.eval(script, 0)
    assert fake.eval("return 1", 0) == 1


def test_fake_servers_share_nothing() -> None:
    first, second = fake_redis(), fake_redis()
    first.set("k", "v")
    assert second.get("k") is None
