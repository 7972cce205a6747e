"""A Spark driver: `python -m tests.spark.jobs CONF`. It reads jobs as JSON lines and prints a JSON line for each.

A job is a module of this package, or any other, with run(spark, settings), which returns what JSON can hold.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any, TextIO

from pyspark.sql import SparkSession


def main(conf: dict[str, str], requests: TextIO, answers: TextIO) -> None:
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say({"app_id": spark.sparkContext.applicationId})
    for line in requests:
        request = json.loads(line)
        try:
            for name, value in request["conf"].items():
                spark.conf.set(name, value)
            say({"result": importlib.import_module(request["job"]).run(spark, request["settings"])})
        except Exception:
            say({"error": traceback.format_exc()})
    spark.stop()


if __name__ == "__main__":
    # Answers alone go to the standard output: what libraries and the JVM print there joins the log.
    answers = os.dup(1)
    os.dup2(2, 1)
    main(json.loads(sys.argv[1]), sys.stdin, os.fdopen(answers, "w"))
