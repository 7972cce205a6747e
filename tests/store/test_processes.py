"""Which process holds something, and whether it has certainly ended."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redis_acker.store.lease import is_gone, process_name
from tests.waiting import wait_until

NAMED = "from redis_acker.store.lease import process_name; print(process_name(), flush=True); import time; "


@contextmanager
def process(code: str = "time.sleep(60)", *before: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its name."""
    command = [*before, sys.executable, "-c", NAMED + code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as found:
        assert found.stdout
        try:
            yield found, found.stdout.readline().strip()
        finally:
            found.kill()


def test_a_process_is_gone_when_it_was_killed_and_not_before() -> None:
    with process() as (one, name):
        assert not is_gone(name)
        assert not is_gone(f"redis-acker drain on {name}")
        one.kill()
        one.wait()
        assert is_gone(name)
        assert is_gone(f"redis-acker drain on {name}")


def test_a_process_is_gone_though_its_parent_has_not_asked_for_it() -> None:
    with process() as (one, name):
        one.kill()
        wait_until(lambda: is_gone(name))
        assert one.returncode is None


def test_this_process_is_not_gone() -> None:
    assert not is_gone(process_name())


def test_a_process_whose_id_another_has_by_now_is_gone() -> None:
    with process() as (_, name):
        before, _, started = name.rpartition(".")
        assert is_gone(f"{before}.{int(started) - 1}")
        assert not is_gone(f"{before}.{started}")


def test_of_a_process_in_another_place_nothing_is_known() -> None:
    """Another boot, another namespace of process ids, another host."""
    with process() as (one, name):
        one.kill()
        one.wait()
        assert is_gone(name)
        head, place = name.rsplit(" ", 1)
        other = ("0" if place[0] != "0" else "1") + place[1:]
        assert not is_gone(f"{head} {other}")


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_process_in_a_namespace_of_its_own_is_not_taken_for_gone() -> None:
    """Its process id means nothing here, and ours nothing there."""
    with process("time.sleep(60)", "unshare", "-Urpf", "--mount-proc", "--kill-child") as (_, name):
        if not name:
            pytest.skip("this machine allows no namespaces")
        assert " pid 1 " in name
        assert not is_gone(name)
        code = f"from redis_acker.store.lease import is_gone; print(is_gone({process_name()!r}))"
        command = ["unshare", "-Urpf", "--mount-proc", sys.executable, "-c", code]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


@pytest.mark.parametrize("name", ["", "host", "host pid 0 00000000", "a pid x 00000000 00.1", "a pid 1 12345678"])
def test_of_what_names_no_process_nothing_is_known(name: str) -> None:
    assert not is_gone(name)


def test_a_process_whose_first_thread_has_ended_is_not_gone() -> None:
    assert hasattr(ctypes.CDLL(None), "pthread_exit")
    code = (
        "import threading, ctypes; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with process(code) as (one, name):
        wait_until(lambda: Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert not is_gone(name)
        os.kill(one.pid, signal.SIGKILL)
        wait_until(lambda: is_gone(name))
