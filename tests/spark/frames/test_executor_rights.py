"""Executors reach the store as a user of their own, with the rights of an executor and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from redis_acker import Acker
from redis_acker.errors import BadInput
from redis_acker.store.progress import RunProgress
from redis_acker.store.roles import role
from redis_acker.store.run_records import RunAbout
from spark_integration import track
from spark_integration.errors import StoreOutOfReach
from tests.backends import Servers, make_backend

PASSWORD = "geheim"


@pytest.fixture(params=["redis-7.0", "valkey-9.1"])
def url(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[str]:
    """Of a server with a user for the executors of the namespace."""
    client: Any = servers.client(request.param)
    client.execute_command("ACL", "SETUSER", namespace, *role("executor").rules(namespace), f">{PASSWORD}")
    yield servers.get(request.param).url
    client.acl_deluser(namespace)
    make_backend(request.param, servers).delete_keys(namespace)


def as_executor(url: str, namespace: str, password: str = PASSWORD) -> str:
    return url.replace("://", f"://{namespace}:{password}@")


def refuse(row: Any) -> tuple[int]:
    if row.id == 7:
        raise ValueError("seven")
    return (row.id,)


def test_tasks_keep_the_books_as_a_user_of_their_own(spark: SparkSession, url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace, executor_url=as_executor(url, namespace)) as acker:
        tracked = track(spark.range(100), acker=acker, spout="orders", message_id="id")
        summary = tracked.map(refuse, "id long", name="check").sink(lambda row: None)
        assert (summary.completed, summary.failed) == (99, 1)


def test_workers_fail_rows_as_a_user_of_their_own(spark: SparkSession, url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace, executor_url=as_executor(url, namespace)) as acker:
        tracked = track(spark.range(100), acker=acker, spout="orders", message_id="id")
        rows, summary = tracked.map(refuse, "id long", name="check").collect()
        assert (len(rows), summary.completed, summary.failed) == (99, 99, 1)


def test_an_executor_reads_the_keys_of_what_is_done(url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace) as acker:
        number = acker.spout_number("orders")
        RunProgress(acker, number).start("run", RunAbout("orders", 0, "", 0, "", ""), keeps_keys=True)
        with Acker(as_executor(url, namespace), namespace=namespace, create=False) as executor:
            assert list(RunProgress(executor, number).done_keys()) == []


def test_a_wrong_password_of_the_executors_is_theirs_alone(spark: SparkSession, url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace, executor_url=as_executor(url, namespace, "falsch")) as acker:
        tracked = track(spark.range(10), acker=acker, spout="orders", message_id="id")
        with pytest.raises(StoreOutOfReach) as caught:
            tracked.map(refuse, "id long", name="check").sink(lambda row: None)
        assert "falsch" not in str(caught.value)


def test_urls_for_executors_name_the_same_servers(url: str, namespace: str) -> None:
    for wrong in ([url, url.replace("/0", "/1")], "embedded"):
        with pytest.raises(BadInput, match="the same 1 servers"):
            Acker(url, namespace=namespace, executor_url=wrong)
    with pytest.raises(BadInput, match="not a server's URL"):
        Acker(url, namespace=namespace, executor_url="host:6379")
