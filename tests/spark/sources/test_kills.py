"""Drivers that are killed: what follows reads the same rows, and writes none twice."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_integration import RedisStreamSource
from tests.backends import Keeper
from tests.proxy import CuttingProxy
from tests.spark.sources.killed import OPTIONS, driver
from tests.spark.sources.queries import SCHEMA, Queries
from tests.waiting import wait_until

pytestmark = pytest.mark.full

Fill = Callable[..., list[str]]

LONG_S = 180


@pytest.mark.slow
def test_a_batch_whose_driver_was_killed_before_the_commit_has_the_same_rows_again(
    queries: Queries, url: str, client: Any, fill: Fill, stream: str, tmp_path: Path
) -> None:
    """Though all its messages were finished, more has come, and there are more cores."""
    fill(range(2500))
    with driver("source", url, stream, tmp_path) as is_alive:
        wait_until(lambda: (tmp_path / "held").exists() or not is_alive(), LONG_S)
        assert is_alive()
    killed = [json.loads((tmp_path / f"{batch}.json").read_text()) for batch in range(2)]
    fill(range(2500, 2600))
    source = RedisStreamSource(url, stream, **OPTIONS)
    again = queries.run(source.frame(queries.spark, SCHEMA))

    assert killed == [list(range(1000)), list(range(1000, 2000))]
    assert [sorted(one) for one in again] == [killed[1], list(range(2000, 2600))]
    # The first two batches are finished and committed; nobody has finished the third.
    assert [int(fields[b"number"]) for _, fields in client.xrange(stream)] == list(range(2000, 2600))


@pytest.mark.slow
def test_a_commit_whose_driver_was_killed_is_taken_up_and_no_row_is_written_twice(
    queries: Queries, url: str, client: Any, fill: Fill, stream: str, tmp_path: Path, keeper: Keeper
) -> None:
    fill(range(2500))
    proxy = keeper.keep(CuttingProxy("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])))
    names = [f"{stream}-target:{shard}" for shard in range(2)]

    def written() -> Counter[int]:
        return Counter(int(fields[b"number"]) for name in names for _, fields in client.xrange(name))

    with driver("sink", proxy.url, stream, tmp_path) as is_alive:
        wait_until(lambda: any(client.scan_iter(match=f"*{stream}*staged*")) or not is_alive(), LONG_S, poll_s=0.001)
        proxy.delay_s = 0.2
        wait_until(lambda: written() or not is_alive(), LONG_S, poll_s=0.001)
        assert is_alive()
    killed = written()
    frame = queries.frame(stream, **OPTIONS)
    writer = frame.writeStream.format("redis_acker").options(stream=f"{stream}-target", shards="2")
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "state"))
    writer.start().awaitTermination()

    assert 0 < killed.total() < 1000
    assert written() == Counter(range(2500))
    kinds = {key.decode().split("}:")[1].split(":")[0] for key in client.scan_iter(match=f"acker-stream:*{stream}*")}
    assert kinds == {"written"}
