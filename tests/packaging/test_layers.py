"""Packages stand in the order of the data, and a lower one never imports a higher one.

Each package, and each module beside the packages, ends its docstring with `May import: ...`, which this test reads.
Every import counts: at the top of a module, inside a function, and under TYPE_CHECKING, since a type that only a
checker sees ties two packages together as well.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = {
    "redis_acker": (
        "errors",
        "clock",
        "version",
        "server",
        "store",
        "components",
        "retries",
        "driver",
        "topology",
        "spouts",
        "views",
        "metrics",
        "ui",
        "cli",
        "testing",
    ),
    "spark_integration": (
        "errors",
        "workers",
        "runs",
        "frames",
        "streams",
        "topologies",
        "sources",
        "demo",
        "demo_killed",
    ),
}
"""Lowest first."""

SPARK = {"pyspark", "spark_integration"}
NOT_SHIPPED = {"tests", "benchmarks", "tools", "examples"}
"""Beside the packages in the repository, and not in the wheel."""

MAY_LOAD_SPARK = "redis_acker/cli/demo"
"""Modules whose path begins with this load Spark, and only when they are called."""

BY_NAME = re.compile(r"\b(import_module|__import__|resolve_name|run_module|run_path)\b|(?<![\w.])(exec|eval)\(")
IMPORT_BY_NAME = {"redis_acker/__init__.py", "redis_acker/cli/main.py"}
"""Modules that import what a table says: the public names, and the commands."""

FOR_PEOPLE_AND_TESTS = {"cli", "testing"}  # nothing outside of redis_acker builds on these

HAS_NAMES = {"redis_acker/testing/__init__.py"}
"""Packages below the top that have public names of their own: tests import from there what no program needs."""


@dataclass(frozen=True)
class Import:
    """What a module imports: `module` in full, and whether that happens before anything of the module is called."""

    line: int
    module: str
    at_once: bool

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def part(self) -> str:
        """The package below the top, or the module beside the packages; nothing for the top itself."""
        return self.module.split(".")[1] if "." in self.module else ""


class _Imports(ast.NodeVisitor):
    def __init__(self, package: str) -> None:
        self.found: list[Import] = []
        self._package = package
        self._lazy = 0

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [Import(node.lineno, name.name, not self._lazy) for name in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self._package.split(".")[: 1 - node.level or None] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        if module in LAYERS and any(name.name in LAYERS[module] for name in node.names):
            self.found += [Import(node.lineno, f"{module}.{name.name}", not self._lazy) for name in node.names]
        else:
            self.found.append(Import(node.lineno, module, not self._lazy))

    def visit_If(self, node: ast.If) -> None:
        is_lazy = ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        self._lazy += is_lazy
        for one in node.body:
            self.visit(one)
        self._lazy -= is_lazy
        for one in node.orelse:
            self.visit(one)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_lazily(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_lazily(node)

    def _visit_lazily(self, node: ast.AST) -> None:
        self._lazy += 1
        self.generic_visit(node)
        self._lazy -= 1


Tree = dict[str, str]
"""The text of every module, by its path."""


def read_tree() -> Tree:
    paths = [path for top in LAYERS for ending in ("py", "pyi") for path in (ROOT / top).rglob(f"*.{ending}")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def imports_of(name: str, text: str) -> list[Import]:
    found = _Imports(name.rpartition("/")[0].replace("/", "."))
    found.visit(parsed(text))
    return found.found


def may_import(text: str) -> list[str] | None:
    """What the docstring of a module says last; None if it does not say."""
    docstring = ast.get_docstring(parsed(text)) or ""
    line = re.fullmatch(r"May import: (.+)\.", docstring.splitlines()[-1]) if docstring else None
    if line is None:
        return None
    return [] if line[1] == "nothing" else line[1].split(", ")


def complaints(tree: Tree) -> list[str]:
    """What is wrong with the imports of a tree; nothing if all is well."""
    found = [complaint for name, text in tree.items() for complaint in _of_module(name, text)]
    return [*found, *(complaint for top in LAYERS for complaint in _of_layers(tree, top))]


def _of_module(name: str, text: str) -> Iterator[str]:
    if name.count("/") > 1 and name.endswith("/__init__.py") and name not in HAS_NAMES and len(parsed(text).body) > 1:
        yield f"{name}: holds more than its docstring"
    if BY_NAME.search(text) and name not in IMPORT_BY_NAME:
        yield f"{name}: imports by name, which this test cannot see"
    for one in imports_of(name, text):
        lazily = name.startswith(MAY_LOAD_SPARK) and not one.at_once
        if name.startswith("redis_acker/") and one.top in SPARK and not lazily:
            yield f"{name}:{one.line}: imports {one.module}"
        if one.top in NOT_SHIPPED or (name.count("/") == 1 and "__init__" in name and one.part == "cli"):
            yield f"{name}:{one.line}: imports {one.module}, which no program may need"


def _of_layers(tree: Tree, top: str) -> Iterator[str]:
    parts = {name.split("/")[1].partition(".")[0] for name in tree if name.startswith(f"{top}/")} - {"__init__"}
    if parts != set(LAYERS[top]):
        yield f"{top}: has {sorted(parts)}, not the layers {LAYERS[top]}"
    beside = {"redis_acker"} if top == "spark_integration" else set()
    for place, part in enumerate(LAYERS[top]):
        head = next(name for name in (f"{top}/{part}.py", f"{top}/{part}/__init__.py") if name in tree)
        allowed = may_import(tree[head])
        if allowed is None:
            yield f"{head}: its docstring does not end with 'May import: ...'"
            continue
        if too_high := set(allowed) - set(LAYERS[top][:place]) - beside:
            yield f"{head}: says that it may import {sorted(too_high)}, which are not below it"
        for name, text in tree.items():
            if name == head or name.startswith(f"{top}/{part}/"):
                yield from (
                    f"{name}:{one.line}: imports {one.module}, and may import {allowed}"
                    for one in imports_of(name, text)
                    if not _is_allowed(one, top, {part, *allowed})
                )


def _is_allowed(one: Import, top: str, allowed: set[str]) -> bool:
    if one.top == top:
        # Not from the top either, which has the public names of all layers.
        return one.part in allowed
    return one.top != "redis_acker" or ("redis_acker" in allowed and one.part not in FOR_PEOPLE_AND_TESTS)


def test_lower_packages_do_not_import_higher_ones_and_each_says_what_it_may_import() -> None:
    assert complaints(read_tree()) == []


def test_topologies_know_nothing_of_tracked_frames_and_their_runs() -> None:
    allowed = may_import(read_tree()["spark_integration/topologies/__init__.py"])
    assert allowed is not None
    assert {"runs", "frames"}.isdisjoint(allowed)


@pytest.mark.parametrize(
    ("module", "text", "complaint"),
    [
        ("redis_acker/store/ids.py", "from redis_acker.driver import replays", "imports redis_acker.driver"),
        ("redis_acker/errors.py", "import redis_acker.store.ids", "imports redis_acker.store.ids"),
        ("redis_acker/store/ids.py", "from ..views import overview", "imports redis_acker.views"),
        ("redis_acker/spouts/jsonl.py", "def f(): from redis_acker.cli import main", "imports redis_acker.cli"),
        (
            "redis_acker/retries/book.py",
            "if TYPE_CHECKING:\n    from redis_acker.driver.driver import SpoutDriver",
            "imports redis_acker.driver.driver",
        ),
        ("redis_acker/driver/driver.py", "from redis_acker import LocalRunner", "imports redis_acker, and may"),
        ("redis_acker/store/ids.py", "def f(): import pyspark", "imports pyspark"),
        ("redis_acker/cli/stats.py", "def f(): import spark_integration.demo", "imports spark_integration.demo"),
        ("redis_acker/cli/demo.py", "from pyspark.sql import Row", "imports pyspark.sql"),
        ("redis_acker/cli/demo.py", "if not TYPE_CHECKING:\n    import pyspark", "imports pyspark"),
        ("redis_acker/cli/demo.py", "if TYPE_CHECKING:\n    x = 1\nelse:\n    import pyspark", "imports pyspark"),
        ("redis_acker/__init__.pyi", "from spark_integration import track", "imports spark_integration"),
        ("redis_acker/__init__.pyi", "from redis_acker.cli.main import main", "which no program may need"),
        ("redis_acker/cli/bench.py", "from benchmarks import store", "which no program may need"),
        ("redis_acker/store/ids.py", "__import__('redis_acker.cli')", "imports by name"),
        ("redis_acker/store/ids.py", "pkgutil.resolve_name('redis_acker.cli')", "imports by name"),
        ("redis_acker/store/ids.py", "exec('import pyspark')", "imports by name"),
        ("redis_acker/store/__init__.py", "from redis_acker.store.acker import Acker", "more than its docstring"),
        ("redis_acker/web.py", "x = 1", "not the layers"),
        ("spark_integration/runs/run.py", "from spark_integration.frames import plan", "spark_integration.frames"),
        (
            "spark_integration/topologies/task.py",
            "from spark_integration.runs.run import Run",
            "spark_integration.runs",
        ),
        ("spark_integration/frames/plan.py", "from redis_acker.cli.bench import bench", "redis_acker.cli.bench"),
        ("spark_integration/sources/rows.py", "from redis_acker.testing import FeederSpout", "redis_acker.testing"),
    ],
)
def test_a_forbidden_import_is_found(module: str, text: str, complaint: str) -> None:
    tree = read_tree()
    tree[module] = f"{tree.get(module, '')}\n{text}\n"
    found = complaints(tree)
    assert [one for one in found if one.startswith(module.partition("/")[0]) and complaint in one], found


def test_a_docstring_that_allows_what_is_above_is_found() -> None:
    tree = read_tree()
    tree["redis_acker/store/__init__.py"] = '"""The ledger.\n\nMay import: errors, clock, server, cli.\n"""\n'
    tree["redis_acker/views/__init__.py"] = '"""Views."""\n'
    assert complaints(tree) == [
        "redis_acker/store/__init__.py: says that it may import ['cli'], which are not below it",
        "redis_acker/views/__init__.py: its docstring does not end with 'May import: ...'",
    ]


WITHOUT_SPARK = """
import importlib, pkgutil, sys

for absent in ("pyspark", "py4j", "pyarrow", "pandas", "spark_integration"):
    sys.modules[absent] = None  # an import of it now raises ImportError
import redis_acker

for name in redis_acker.__all__:
    getattr(redis_acker, name)
for module in pkgutil.walk_packages(redis_acker.__path__, "redis_acker."):
    importlib.import_module(module.name)

from redis_acker import Acker, BasicBolt, LocalRunner, TopologyBuilder
from redis_acker.server.embedded import EmbeddedServer
from redis_acker.spouts.iterable import IterableSpout

class Nothing(BasicBolt):
    def process(self, tup, emit):
        pass

builder = TopologyBuilder("job")
builder.spout("numbers", IterableSpout(range(10)))
builder.bolt("nothing", Nothing()).shuffle("numbers")
with EmbeddedServer() as server, Acker(server.url) as acker, LocalRunner(builder.build(), acker) as runner:
    assert runner.wait_until_idle(timeout_s=60)
    print(runner.counters()["numbers"].acked)
"""


def test_redis_acker_works_where_spark_is_not_installed() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "10\n"), ran.stderr
