"""A load on Spark itself: a tracked frame in an application with two executors, whose driver, executors and Python
workers are killed. The driver is started again until every message is complete."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from redis_acker.errors import AckerError
from spark_integration import track
from tests.chaos.harness.journal import Journal, as_runs, from_runs, longest_gap_s, read
from tests.chaos.harness.planted import begin
from tests.chaos.harness.roots import SPOUT, open_acker
from tests.chaos.harness.verdict import Verdict

PARTITIONS = 4
ROW_S = 0.002
FIRST = 2
REPLAYS = 5
"""How often what timed out while workers were killed is tried again."""

MASTER = "local-cluster[2,1,512]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "8",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def run(url: str, namespace: str, folder: Path, bug: str) -> None:
    """Runs until every message is complete. A job that fails as a whole is started again."""
    begin(folder, bug)
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", SPARK_WORKER_DIR=str(folder / "work"))
    os.environ["PYTHONPATH"] = os.getcwd()  # for the executors
    with (folder / "spark").open("ab") as said:
        os.dup2(said.fileno(), 2)
        os.dup2(said.fileno(), 1)
    builder = SparkSession.builder.master(MASTER).appName("chaos")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark, journal = builder.getOrCreate(), Journal(folder / "told")
    with open_acker(url, namespace) as acker:
        while True:
            try:
                frame = spark.range(FIRST, FIRST + int((folder / "count").read_text()), 1, PARTITIONS)
                tracked = track(frame, acker=acker, spout=SPOUT, message_id="id", progress=False, replays=REPLAYS)
                summary = tracked.sink(_sink(folder))
                journal.note("summary", summary.completed, summary.dead)
                if not summary.failed:
                    return
            except AckerError as error:
                journal.note("ended", f"{type(error).__name__}: {error}")
                time.sleep(0.5)


def _sink(folder: Path) -> Any:
    told = folder / "told"

    def deliver(batch: Any) -> None:
        time.sleep(ROW_S * batch.num_rows)
        numbers = batch["id"].to_numpy().astype(np.uint64)
        Journal(told).note("sunk", as_runs(numbers))

    return deliver


def judge(folder: Path, *, pending: int) -> Verdict:
    """What the run says in the end, beside what the sink has noted."""
    messages = int((folder / "count").read_text())
    times_s, numbers, completed, dead = [], [], 0, 0
    for what, at_s, facts in read(folder / "told"):
        if what == "sunk":
            times_s.append(at_s)
            numbers.append(from_runs(facts[0]))
        elif what == "summary":
            completed, dead = facts
    sunk = np.concatenate([np.zeros(0, dtype=np.uint64), *numbers])
    distinct = len(np.unique(sunk))
    verdict = Verdict(carried=messages, replays=len(sunk) - distinct, stall_s=longest_gap_s(times_s))
    verdict.wrong |= {
        "stuck": pending,
        "lost": max(0, messages - completed - dead - pending),
        "false": max(0, completed - distinct),
        "innocents": dead,
    }
    return verdict
