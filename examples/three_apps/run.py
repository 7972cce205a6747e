"""Starts a server and the three applications, gives them orders, and compares what they booked with what they got."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import redis

from redis_acker import Acker, DeadLetters

HERE = Path(__file__).parent
POISON = ("tea:lots", "gold:1", "milk:1 tea:-1")
"""What the first, the second and the third application can never do."""


def fill(client: "redis.Redis", orders: int, poison: int) -> dict[str, list[str]]:
    """Adds orders to the stream. Returns their items, by id; those of the poisonous ones are empty."""
    expected = {}
    for number in range(orders):
        is_poison = number % (orders // poison) == 0 and number // (orders // poison) < poison
        text = POISON[number % 3] if is_poison else ("tea:2 milk:1", "sugar:3", "milk:1 sugar:1 tea:1")[number % 3]
        key = client.xadd("orders", {"text": text}).decode()
        expected[f"orders/{key}"] = [] if is_poison else [item.split(":")[0] for item in text.split()]
    return expected


def start(app: str, url: str, logs: Path, cores: int) -> "subprocess.Popen[bytes]":
    # Spark's workers import shared.py too; on a cluster it would be shipped with --py-files.
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PYSPARK_PYTHON": sys.executable, **os.environ, "PYTHONPATH": path}
    with (logs / f"{app}.out").open("ab") as out:
        command = [sys.executable, HERE / f"{app}.py", url, logs, str(cores)]
        return subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)


def report(logs: Path, expected: dict[str, list[str]], dead: set[str]) -> dict[str, int]:
    """What the logs say: the store is only asked for its dead letters."""
    booked = Counter(tuple(line.split()[:2]) for line in (logs / "billing.log").read_text().splitlines())
    wanted = {(order, item) for order, items in expected.items() for item in items}
    over = set((logs / "over.log").read_text().splitlines())
    return {
        "orders": len(expected),
        "completed": len(over - dead),
        "dead": len(dead),
        "lost": len(wanted - booked.keys()) + len(expected.keys() - over),
        "dead by mistake": len({order for order in dead if expected[order]}),
        "booked twice": sum(booked[one] - 1 for one in booked.keys() & wanted),
    }


if __name__ == "__main__":
    with Acker("embedded") as acker, tempfile.TemporaryDirectory() as directory:
        logs, url = Path(directory), acker.urls[0]
        client = redis.Redis.from_url(url)
        expected = fill(client, orders=int(sys.argv[1]), poison=3)
        apps = [start(app, url, logs, cores=1) for app in ("orders", "pricing", "billing")]
        if apps[0].wait():
            print((logs / "orders.out").read_text(), file=sys.stderr)
        client.set("over", "yes")  # the first application has done so, unless it ended with an error
        for app in apps:
            app.wait()
        with Acker(url, namespace="three-apps") as orders:
            dead = {letter.message_id for letter in DeadLetters(orders, spout="orders")}
        for name, count in report(logs, expected, dead).items():
            print(f"{name}: {count:,}")
