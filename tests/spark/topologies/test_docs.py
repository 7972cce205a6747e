"""The code on the page about topologies on Spark runs."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from redis_acker.server.embedded import EmbeddedServer
from tests.docs.pages import ROOT, blocks


def test_the_code_of_the_page_runs_and_prints_what_its_comment_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = blocks(ROOT / "docs" / "topologies_on_spark.md")[0].code
    with EmbeddedServer() as server:
        monkeypatch.setenv("REDIS_ACKER_URL", server.url)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(code, "topologies_on_spark.md", "exec"), names)

    expected = code.rpartition("# ")[2].strip()
    assert capsys.readouterr().out.split() == [expected]
