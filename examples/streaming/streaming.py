"""Orders in files, read by a tracked stream: a flaky service, a broken order, and a replay once it is mended."""

import json
import tempfile
from pathlib import Path

from pyspark.sql import Row, SparkSession

from redis_acker import Acker, DeadLetters, RetryPolicy
from redis_acker.server.embedded import EmbeddedServer
from spark_integration import TrackedQuery, track_stream

SCHEMA = "id string, number long, amount long"


def put(directory: Path, name: str, numbers: range) -> None:
    """A file of orders. The amount of order 13 makes no sense."""
    rows = ({"id": f"order-{n}", "number": n, "amount": -1 if n == 13 else n} for n in numbers)
    (directory / f".{name}").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (directory / f".{name}").rename(directory / "in" / name)


class Booking:
    """What executors do with an order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def check(self, row: Row) -> Row:
        if row.amount < 0 and not (self.directory / "accept negative amounts").exists():
            raise ValueError(f"{row.amount} is no amount")
        return row

    def book(self, row: Row) -> None:
        """Order 7 is refused at its first attempt. Written under its id, an order can be booked twice without harm."""
        if row.number == 7 and not (self.directory / "refused").exists():
            (self.directory / "refused").touch()
            raise ConnectionError("try again later")
        (self.directory / "booked" / row.id).write_text(str(row.amount))


def wait_for(query: TrackedQuery, completed: int, dead: int) -> None:
    while (query.counters.completed, query.counters.dead) != (completed, dead):
        if query.wait(timeout_s=0.1):
            break
    found = query.counters
    print(f"{found.completed} completed, {found.failed} failed attempts, {found.dead} dead, {found.waiting} waiting")


with tempfile.TemporaryDirectory() as name, EmbeddedServer() as server, Acker(server.url) as acker:
    directory = Path(name)
    for folder in ("in", "booked"):
        (directory / folder).mkdir()
    put(directory, "first.json", range(20))
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.readStream.schema(SCHEMA).json(str(directory / "in"))
    booking = Booking(directory)
    retries = RetryPolicy(max_attempts=3, first_ms=200)
    orders = track_stream(frame, acker=acker, spout="orders", message_id="id", retries=retries)
    job = orders.map(booking.check, SCHEMA).sink(booking.book, per="row")
    with job.start(checkpoint=str(directory / "checkpoint")) as query:
        wait_for(query, completed=19, dead=1)
        put(directory, "second.json", range(20, 40))  # the stream was not stopped by order 13
        wait_for(query, completed=39, dead=1)
        (directory / "accept negative amounts").touch()
        letters = DeadLetters(acker, spout="orders")
        for letter in letters:
            print(f"replaying {letter.payload}, which failed {len(letter.history)} times: {letter.history[-1].error}")
            letters.replay(letter)
        wait_for(query, completed=40, dead=1)
    print(len(list((directory / "booked").iterdir())), "booked")
    spark.stop()
