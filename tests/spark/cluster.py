"""A real standalone Spark cluster for tests: a Master and two Workers, on 127.0.0.1 and 127.0.0.2.

Jobs run in driver processes of their own, so that drivers and executors can be killed. Nothing outlives the test run,
even if that is killed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark

from tests.binaries import missing
from tests.spark.processes import MARK, ROOT, command_line, environment, marked, start_keeper
from tests.spark.protocol import Conversation
from tests.waiting import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")

#: Starting a JVM takes seconds, and many seconds on a busy machine.
START_S = 90.0

#: Quick to start and small: nothing here runs long enough to profit from more.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

#: An application may lose as many executors as its tests kill.
DAEMON_OPTIONS = f"{JAVA_OPTIONS} -Dspark.deploy.maxExecutorRetries=-1"

#: Room for two drivers at a time, each with one executor of one core on each worker.
WORKER_CORES = 4

#: Copies of slow tasks, started early enough for a test. Spark starts a copy on another host only.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
}

#: Settings of every session in tests: quiet, small, and on this machine alone.
SMALL = {
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.default.parallelism": "4",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_ON_BOTH_WORKERS = {
    "spark.cores.max": str(len(HOSTS)),
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # No task before both executors are there, and none waits for the one that has its data.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_S:g}s",
    "spark.locality.wait": "0s",
    # A dead executor's shuffle files are given up at once.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}


def require_java() -> None:
    """Without Java the test is skipped, and in CI it fails."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        missing("java")


@dataclass(frozen=True)
class Executor:
    """An executor process."""

    pid: int
    executor_id: str
    host: str

    def kill(self, *, lose_files: bool = True) -> None:
        """SIGKILL. With lose_files its shuffle files and cached blocks are deleted too, as with a lost machine."""
        homes = environment(self.pid).get("SPARK_EXECUTOR_DIRS", "").split(":")
        blocks = [path for home in homes if home for path in Path(home).glob("blockmgr-*")]
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not command_line(self.pid))
        for path in blocks if lose_files else ():
            shutil.rmtree(path, ignore_errors=True)


class Driver:
    """A Spark application in a process of its own. It runs jobs one after the other: modules with run()."""

    def __init__(self, cluster: StandaloneCluster, conf: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._log = cluster.directory / f"driver-{secrets.token_hex(4)}.log"
        self._conversation = Conversation(
            [sys.executable, "-m", "tests.spark.jobs", json.dumps(dict(conf))],
            log=self._log,
            cwd=cluster.directory,
            env=cluster.environment(HOSTS[0]),
        )
        try:
            self.app_id: str = self._conversation.answer(START_S)["app_id"]
        except BaseException:
            self.kill()
            raise

    def run(self, job: str, settings: Mapping[str, Any], *, aqe: bool = True, timeout_s: float = 120) -> Any:
        """What the run() of the module named `job` returns. Raises JobFailed with what it raises."""
        self.start(job, settings, aqe=aqe)
        return self.result(timeout_s)

    def start(self, job: str, settings: Mapping[str, Any], *, aqe: bool = True) -> None:
        """Begins to run a job; result() waits for it."""
        conf = {"spark.sql.adaptive.enabled": str(aqe).lower()}
        self._conversation.say({"job": job, "settings": dict(settings), "conf": conf})

    def result(self, timeout_s: float = 120) -> Any:
        return self._conversation.answer(timeout_s)["result"]

    @property
    def is_idle(self) -> bool:
        """It runs, and every job that was started has had its answer."""
        return self._conversation.is_idle

    def executors(self) -> list[Executor]:
        """The executors that run now, by host."""
        found = []
        for pid in marked(self._cluster.mark):
            words = command_line(pid)
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and self.app_id in words:
                named = dict(pairwise(words))
                found.append(Executor(pid, named["--executor-id"], named["--hostname"]))
        return sorted(found, key=lambda executor: executor.host)

    def wait_for_executors(self, count: int = len(HOSTS)) -> list[Executor]:
        return wait_until(lambda: found if len(found := self.executors()) == count else [], START_S)

    def log(self) -> str:
        """What the driver has logged: warnings and errors."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL for the driver, its JVM included. Its executors end by themselves."""
        self._conversation.kill()

    def stop(self) -> None:
        """Lets the application end in good order, and its executors with it."""
        self._conversation.end(START_S)
        wait_until(lambda: not self.executors(), START_S)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()


class StandaloneCluster:
    """A Master and two Workers. It ends with stop() or with the test run."""

    def __init__(self) -> None:
        require_java()
        self.mark = secrets.token_hex(8)
        self.directory = Path(tempfile.mkdtemp(prefix="acker-spark-", dir="/tmp"))
        self._keeper = start_keeper(self.mark, self.directory)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._shared: dict[bool, Driver] = {}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        options = ["--host", HOSTS[0], "--port", "0", "--webui-port", "0"]
        master = self._launch(HOSTS[0], "org.apache.spark.deploy.master.Master", *options)
        self.url = self._wait_for(master, r"Starting Spark master at (spark://\S+)")
        workers = []
        for host in HOSTS:
            work = self.directory / f"work-{host}"
            options = ["--host", host, "--port", "0", "--webui-port", "0", "--work-dir", str(work)]
            options += ["--cores", str(WORKER_CORES), "--memory", "4g", self.url]
            workers.append(self._launch(host, "org.apache.spark.deploy.worker.Worker", *options))
        for worker in workers:
            self._wait_for(worker, r"(Successfully registered with master)")

    def driver(self, conf: Mapping[str, str] | None = None, *, speculation: bool = False) -> Driver:
        """A new application, with one executor of one core on each worker."""
        own = {
            "spark.master": self.url,
            "spark.app.name": "redis-acker tests",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
        }
        return Driver(
            self, {**SMALL, **_ON_BOTH_WORKERS, **own, **(SPECULATION if speculation else {}), **(conf or {})}
        )

    def shared_driver(self, *, speculation: bool = False) -> Driver:
        """A driver for one test after the other: to start one takes longer than most jobs.

        A test may kill it or leave a job unfinished: the next one is given a new driver then.
        """
        driver = self._shared.get(speculation)
        if driver is None or not driver.is_idle:
            if driver is not None:
                driver.kill()
            driver = self._shared[speculation] = self.driver(speculation=speculation)
        return driver

    def environment(self, host: str) -> dict[str, str]:
        """What a process of the cluster is started with."""
        home = str(Path(pyspark.__file__).parent)
        local = self.directory / f"local-{host}"
        local.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return kept | {
            MARK: self.mark,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_CONF_DIR": str(self.directory),
            "SPARK_DAEMON_JAVA_OPTS": DAEMON_OPTIONS,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": home,
            "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_LOCAL_IP": host,
        }

    def stop(self) -> None:
        """Ends every process of the cluster, drivers and executors too, and removes its files."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()
        for process in self._processes:
            process.wait()

    def _launch(self, host: str, name: str, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
        path = self.directory / f"{name.rpartition('.')[2]}-{host}.log"
        env = self.environment(host)
        with path.open("wb") as log:
            process = subprocess.Popen(
                [f"{env['SPARK_HOME']}/bin/spark-class", name, *options],
                cwd=self.directory,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process, path

    def _wait_for(self, launched: tuple[subprocess.Popen[bytes], Path], pattern: str) -> str:
        """What the pattern finds in a process's log."""
        return wait_until(partial(_find, *launched, pattern), START_S, poll_s=0.1)


def _find(process: subprocess.Popen[bytes], path: Path, pattern: str) -> str:
    log = path.read_text(errors="replace")
    if process.poll() is not None:
        raise RuntimeError(f"{path.stem} ended with exit code {process.returncode}: {log[-1000:]}")
    found = re.search(pattern, log)
    return found.group(1) if found else ""
