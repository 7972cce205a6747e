"""The processes of docker-compose.yml, with its commands and settings, run the demo job. Only Docker is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_acker import Acker, new_edges
from tests.deploy.compose import PROFILES, read_services
from tests.deploy.stack import Stack

pytestmark = pytest.mark.full

PASSWORD = "a-secret-of-the-test"

ROOTS = 2_000

SHARDS = {"one": 1, "shards": 3, "cluster": 16}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """What the profiles have in common, Spark, is started once for all of them."""
    with Stack(PROFILES, tmp_path_factory.mktemp("deploy") / "stack", PASSWORD) as stack:
        yield stack


@pytest.mark.parametrize("profile", PROFILES)
def test_the_demo_job_ends_well_on(profile: str, stack: Stack) -> None:
    (master,) = stack.start("spark-master")
    applications = master.log.count("Registered app")

    done = stack.run(f"demo-{profile}")

    assert done.exit_code == 0, done.log
    assert master.log.count("Registered app") > applications
    with Acker(done.environment["REDIS_ACKER_URL"], namespace="demo", create=False) as acker:
        assert (acker.settings.shards, acker.pending_count()) == (SHARDS[profile], 0)
    assert stack.is_healthy(f"rotator-{profile}")
    assert stack.is_healthy("spark-worker")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_servers_ask_for_a_password_and_write_everything_down_on(profile: str, stack: Stack) -> None:
    names = [name for name in read_services(profile) if name.startswith("redis-") and not name.endswith("-init")]
    for name in names:
        stack.start(name)
        stack.wait_for(name)
        _check_server(stack.address(name), stack.instances[name][0].directory)


def test_a_cluster_whose_nodes_come_back_with_other_addresses_is_whole_again(tmp_path: Path) -> None:
    nodes = [f"redis-cluster-{number}" for number in (1, 2, 3)]
    with Stack(["cluster"], tmp_path / "stack", PASSWORD) as stack:
        url = _cluster_url(stack)
        with Acker(url, namespace="demo") as acker:
            roots = acker.allocate("rows", ROOTS)
            acker.init(roots, new_edges(ROOTS))

        stack.end("redis-cluster-init", *nodes)

        assert _cluster_url(stack) != url
        with Acker(_cluster_url(stack), namespace="demo", create=False) as acker:
            assert acker.pending_count() == ROOTS


def _cluster_url(stack: Stack) -> str:
    stack.start("redis-cluster-init")
    stack.wait_for("redis-cluster-init", "service_completed_successfully")
    return f"redis+cluster://:{PASSWORD}@{stack.address('redis-cluster-1')}:6379"


def _check_server(address: str, directory: Path) -> None:
    with redis.Redis(address, 6379, retry=Retry(NoBackoff(), 0)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with redis.Redis(address, 6379, password=PASSWORD) as client:
        settings = client.config_get("append*", "maxmemory*")
        assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "everysec")
        assert settings["maxmemory-policy"] == "noeviction"
        assert int(settings["maxmemory"]) > 0
    assert list((directory / "appendonlydir").glob("*.aof"))
