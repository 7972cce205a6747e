"""`redis-acker drain --out`: a file that is interrupted, damaged, not its own, or too large."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.acting_commands.shop import Shop, ids_of, lines, numbered
from tests.cli.runs import SCRIPT
from tests.waiting import wait_until

SMALL_DISK = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command whose files can have 5000 bytes."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_drain_goes_on_with_the_same_file(shop: Shop, out: Path, number: signal.Signals) -> None:
    roots = shop.start_failed(numbered(40))
    with shop.started("drain", "--out", str(out), "--rate", "10") as process:
        wait_until(lambda: out.exists() and out.stat().st_size > 0, 20)
        process.send_signal(number)
        _, printed = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    assert printed == ("Interrupted.\n" if number == signal.SIGINT else "")
    assert shop.entries() + shop.withdrawn() > 0
    shop.succeed("drain", "--out", str(out))
    assert sorted(line["root"] for line in lines(out.read_text())) == sorted(f"0x{one:016x}" for one in roots.tolist())
    assert shop.entries() == shop.withdrawn() == 0


def test_half_a_line_at_the_end_of_the_file_is_cut_off_and_written_again(shop: Shop, out: Path) -> None:
    shop.start_failed(numbered(8))
    with shop.started("drain", "--out", str(out), "--rate", "4") as process:
        wait_until(lambda: out.exists() and len(out.read_text().splitlines()) == 4 and shop.withdrawn(), 20)
        process.kill()
        process.wait()
    whole = out.read_bytes()
    with out.open("ab") as file:
        file.write(whole[:100])
    ran = shop.run("drain", "--out", str(out))
    assert ran.stderr == f"{out} ended with half a line, which was cut off (100 bytes).\n"
    assert out.read_bytes().startswith(whole)
    assert sorted(ids_of(out.read_text())) == numbered(8)


def test_a_file_of_something_else_is_refused_untouched(shop: Shop, out: Path, tmp_path: Path) -> None:
    shop.start_failed(numbered(2))
    out.write_text("precious")
    ran = shop.run("drain", "--out", str(out))
    assert (ran.returncode, ran.stdout, out.read_text()) == (2, "", "precious")
    assert ran.stderr == f"Error: {out} exists and was not written by `redis-acker drain`: name another file.\n"
    ran = shop.run("drain", "--out", str(tmp_path / "missing" / "f"))
    assert (ran.returncode, "cannot be written (No such file or directory)" in ran.stderr) == (2, True)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ran = shop.run("drain", "--out", str(fifo))
    assert (ran.returncode, "is not a regular file" in ran.stderr) == (2, True)
    assert shop.withdrawn() == 0


def test_a_full_disk_is_one_sentence_and_loses_nothing(shop: Shop, out: Path) -> None:
    shop.start_failed(numbered(200))
    ran = subprocess.run(
        [sys.executable, "-c", SMALL_DISK, SCRIPT, "drain", "--out", str(out)],
        env=shop.environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "cannot be written (File too large): make room and run the same command again" in ran.stderr
    shop.succeed("drain", "--out", str(out))
    assert sorted(ids_of(out.read_text())) == sorted(numbered(200))
