"""Counts how often a reader changes modules on four ways through the code.

    .venv/bin/python tools/module_changes.py [--json] [--calls WAY]

A module change is a pair of modules of which a function of the first calls one of the second: what somebody who follows
the code has to open. Calls counts the pairs of functions, lines those of the modules on the way. "At least" is what the
way would take with the same lines in files of 300, each entered from one other.

Four scenarios run on an embedded server, each with one message, and are traced from the moment that the message begins
its way to the moment that it ends:

    frame    a row that a tracked Spark job maps and hands to a sink, in the driver and in the Python worker
    tuple    a message that a spout hands out, through two bolts, until the spout is told that it is complete
    timeout  a message that a bolt never acks, until its dead letter is stored and the spout told
    replay   a failure that `drain` takes out and `replay` gives back
"""

from __future__ import annotations

import inspect
import io
import json
import math
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Any

TREE = Path(__file__).resolve().parent.parent
PACKAGES = ("redis_acker", "spark_integration")
WORKER_CALLS = "MODULE_CHANGES_WORKER_CALLS"
"""Environment variable: the directory into which Python workers of Spark write their calls."""

LONGEST_FILE = 300
"""Lines that a file may have."""

BESIDE = ("rotator", "flush", "watch")
"""Threads that are on no message's way, except that the rotator brings a timeout."""

sys.path.insert(0, str(TREE))

Call = tuple[str, str, str, str]
"""Module and function that call, module and function that are called."""


class Recorder:
    """Notes calls from module to module while it is on."""

    def __init__(self, *, without: tuple[str, ...] = ()) -> None:
        self.calls: set[Call] = set()
        self.is_on = False
        self._without = without

    def note(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or not self.is_on or not (module := _module_of(frame)):
            return
        if frame.f_code.co_name.startswith("<"):  # a lambda or a generator is read where it is written
            return
        if threading.current_thread().name in self._without:
            return
        caller = frame.f_back
        while caller and not _module_of(caller):
            caller = caller.f_back
        if caller and _module_of(caller) != module:
            self.calls.add((_module_of(caller), _name_of(caller), module, _name_of(frame)))


def _module_of(frame: FrameType) -> str:
    """The module of ours that the frame runs in, or nothing. Bodies of modules and classes are on nobody's way."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return ""
    found = _MODULES.get(code.co_filename)
    if found is None:
        path = Path(code.co_filename)
        inside = path.is_relative_to(TREE) and path.relative_to(TREE).parts[0] in PACKAGES
        found = _MODULES[code.co_filename] = ".".join(path.relative_to(TREE).with_suffix("").parts) if inside else ""
    return found


_MODULES: dict[str, str] = {}


def _name_of(frame: FrameType) -> str:
    return str(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))  # Python 3.10 has the short name only


@contextmanager
def traced(recorder: Recorder) -> Iterator[Recorder]:
    """Traces all threads that are started inside, and this one."""
    threading.setprofile(recorder.note)
    sys.setprofile(recorder.note)
    try:
        yield recorder
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


# -- the four ways ---------------------------------------------------------------------------------------------------


def a_row_of_a_tracked_frame(url: str) -> set[Call]:
    from pyspark.sql import SparkSession

    from redis_acker import Acker
    from spark_integration import track

    recorder = Recorder(without=BESIDE)
    with tempfile.TemporaryDirectory() as directory:
        settings = {
            "spark.python.daemon.module": Path(__file__).stem,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
        }
        os.environ |= {  # for the JVM that is started now
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{TREE / 'tools'}:{TREE}",
            WORKER_CALLS: directory,
        }
        builder = SparkSession.builder.master("local[1]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        rows = spark.createDataFrame([(1, "a")], "id long, text string").coalesce(1)
        with Acker(url, namespace="frame") as acker, traced(recorder):
            recorder.is_on = True
            tracked = track(rows, acker=acker, spout="rows", message_id="id", stable_source=True, progress=False)
            tracked.map(lambda row: (row.id,), "id long", name="map").sink(lambda batch: None)
            recorder.is_on = False
        spark.stop()
        worker_calls = [pickle.loads(file.read_bytes()) for file in Path(directory).iterdir()]
    return recorder.calls.union(*worker_calls)


def run_daemon_of_workers() -> None:
    """What Spark starts in place of its own daemon, from which it forks Python workers."""
    from pyspark import daemon

    work = daemon.worker

    def traced_worker(sock: socket, authenticated: bool) -> int:
        recorder = Recorder()
        recorder.is_on = True
        try:
            with traced(recorder):
                return work(sock, authenticated)
        finally:
            file, _ = tempfile.mkstemp(dir=os.environ[WORKER_CALLS])
            os.write(file, pickle.dumps(recorder.calls))

    daemon.worker = traced_worker
    daemon.manager()


def a_tuple(url: str) -> set[Call]:
    return _run_topology(url, "tuple", Recorder(without=BESIDE), timeout_ms=30_000, forgetful=False)


def a_timeout(url: str) -> set[Call]:
    return _run_topology(url, "timeout", Recorder(), timeout_ms=300, forgetful=True)


def _run_topology(url: str, namespace: str, recorder: Recorder, *, timeout_ms: int, forgetful: bool) -> set[Call]:
    from redis_acker import Acker, BasicBolt, Bolt, LocalRunner, Message, RetryPolicy, Spout, TopologyBuilder

    class OneMessage(Spout):
        fields = ("value",)
        handed_out = False

        def next_batch(self, limit: int) -> list[Message]:
            found = [] if self.handed_out else [Message(["a"], id=1)]
            self.handed_out = recorder.is_on = True
            return found

        def ack(self, message_id: Any) -> None:
            recorder.is_on = False

    class PassOn(BasicBolt):
        fields = ("value",)

        def process(self, tup: Any, emit: Callable[..., None]) -> None:
            emit(tup["value"])

    class Forget(Bolt):
        def execute(self, tup: Any) -> None:
            pass

    builder = TopologyBuilder("way")
    builder.spout("spout", OneMessage())
    builder.bolt("first", PassOn()).shuffle("spout")
    last = Forget() if forgetful else PassOn()
    builder.bolt("last", last).shuffle("first")
    once = RetryPolicy(max_attempts=1)
    with (
        traced(recorder),
        Acker(url, namespace=namespace, timeout_ms=timeout_ms) as acker,
        LocalRunner(builder.build(), acker, retries=once) as runner,
    ):
        assert runner.wait_until_idle(timeout_s=30)
    return recorder.calls


def a_replay(url: str) -> set[Call]:
    from redis_acker import Acker, new_edge
    from redis_acker.cli.main import main as cli

    with Acker(url, namespace="replay") as acker:
        roots = acker.allocate("spout", 1)
        acker.init(roots, [new_edge()], message_ids=["m1"])
        acker.fail(roots, component="bolt", error="poison")
    recorder = Recorder(without=BESIDE)
    lines = io.StringIO()
    place = ["--url", url, "--namespace", "replay"]
    with traced(recorder), redirect_stderr(io.StringIO()):
        recorder.is_on = True
        with redirect_stdout(lines):
            cli(["drain", *place], standalone_mode=False)
        stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(lines.getvalue().encode()))
        with redirect_stdout(io.StringIO()):
            cli(["replay", "-", *place], standalone_mode=False)
        sys.stdin = stdin
        recorder.is_on = False
    return recorder.calls


WAYS: dict[str, Callable[[str], set[Call]]] = {
    "frame": a_row_of_a_tracked_frame,
    "tuple": a_tuple,
    "timeout": a_timeout,
    "replay": a_replay,
}


def measure() -> dict[str, set[Call]]:
    from redis_acker import Acker

    with Acker("embedded") as acker:
        return {name: way(acker.urls[0]) for name, way in WAYS.items()}


def show(found: dict[str, set[Call]], arguments: list[str]) -> None:
    if "--calls" in arguments:
        for caller, function, callee, called in sorted(found[arguments[arguments.index("--calls") + 1]]):
            print(f"{caller}:{function} -> {callee}:{called}")
        return
    figures = {name: _figures(calls) for name, calls in found.items()}
    if "--json" in arguments:
        print(json.dumps(figures))
        return
    print(f"{'way':8}  module changes  at least  calls  modules  lines")
    for name, figure in figures.items():
        print(
            f"{name:8}  {figure['changes']:14}  {figure['at_least']:8}  {figure['calls']:5}  {figure['modules']:7}  "
            f"{figure['lines']:5}"
        )


def _figures(calls: set[Call]) -> dict[str, int]:
    modules = {module for call in calls for module in call[::2]}
    lines = sum(map(_lines_of, modules))
    return {
        "changes": len({(caller, callee) for caller, _, callee, _ in calls}),
        "at_least": math.ceil(lines / LONGEST_FILE) - 1,
        "calls": len(calls),
        "modules": len(modules),
        "lines": lines,
    }


def _lines_of(module: str) -> int:
    path = TREE / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(file.read_text().splitlines())


if __name__ == "__main__":
    if WORKER_CALLS in os.environ:
        run_daemon_of_workers()
    else:
        show(measure(), sys.argv[1:])
