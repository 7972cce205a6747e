"""What waits in a run, waits by its clock: whoever asks the machine for the time cannot be tested in simulated time."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WAITING = [
    *(ROOT / "redis_acker" / "store").glob("*.py"),
    *(ROOT / "redis_acker" / "driver").glob("*.py"),
    *(ROOT / "redis_acker" / "topology").glob("*.py"),
]
REAL = {"redis_acker/store/transport.py"}
"""Waits for servers in trouble, and that is real."""

OURS = {"self._task.queue.wait"}
"""Methods of classes of our own, which wait by a clock."""

OF_THE_MACHINE = {"time", "sched"}


def complaints(text: str) -> list[str]:
    """Uses of the machine's clock, and waits of no clock."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [f"{node.lineno}: imports {name.name}" for name in node.names if name.name in OF_THE_MACHINE]
        elif isinstance(node, ast.ImportFrom) and node.module in OF_THE_MACHINE:
            found.append(f"{node.lineno}: imports from {node.module}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            made = ast.unparse(node.func)
            if node.func.attr == "wait" and made not in OURS:
                found.append(f"{node.lineno}: {made}() goes by no clock")
            elif made in ("threading.Thread", "threading.Timer"):
                found.append(f"{node.lineno}: {made} is not made by a clock")
    return found


def test_what_waits_in_a_run_waits_by_its_clock() -> None:
    found = {str(path.relative_to(ROOT)): complaints(path.read_text()) for path in WAITING}
    assert {name: wrong for name, wrong in found.items() if wrong and name not in REAL} == {}
    assert len(found) > 20


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import sleep",
        "stop.wait(1)",
        "self._wake.wait()",
        "threading.Thread(target=run)",
        "threading.Timer(1, run)",
    ],
)
def test_a_wait_of_no_clock_is_found(text: str) -> None:
    assert complaints(text)
