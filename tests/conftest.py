"""Fixtures for every test: the stores, servers of its own, a clock, and a namespace."""

import logging
import secrets
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.logger import PySparkLogger

from tests.backends import BACKENDS, Backend, Keeper, Servers, make_backend
from tests.clock import Clock
from tests.servers import EVERY_WRITE_TO_DISK, Server, start_server
from tests.unprintable import StrictHandler


def pytest_configure() -> None:
    # A run that was started in the background ignores SIGINT, and so would all processes that tests start to interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Pytest adds its handler to loggers that do not propagate, and PySpark's would have it write JSON from then on.
    pytest.MonkeyPatch().setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """servers.get(kind) starts a server once per run; for a server to be killed use tests.servers."""
    pool = Servers()
    yield pool
    pool.stop()


@pytest.fixture
def url(servers: Servers) -> str:
    """Of a server that tests share."""
    return servers.get("redis-7.0").url


@pytest.fixture
def client(servers: Servers) -> Any:
    """Of the same server."""
    return servers.client("redis-7.0")


@pytest.fixture
def durable_server(keeper: Keeper) -> Server:
    """One of the test's own, which has written to disk whatever it has answered: it may be killed and restarted."""
    return keeper.keep(start_server("redis-7.0", *EVERY_WRITE_TO_DISK))


@pytest.fixture
def namespace() -> str:
    """A name that no other test uses."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[Backend]:
    """Runs the test once per kind of store."""
    found = make_backend(request.param, servers)
    yield found
    found.delete_keys(namespace)


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    """keeper.keep(server) stops it when the test is over."""
    with Keeper() as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def strict_log() -> Iterator[None]:
    """Lets a log line that cannot be formatted raise an error where it is logged."""
    handler, loggers = StrictHandler(), [logging.getLogger(name) for name in ("redis_acker", "spark_integration")]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
