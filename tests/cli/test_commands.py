"""What every command has in common: help, version, errors, Ctrl-C."""

import signal
from importlib.metadata import version

import pytest

from redis_acker.leftovers import registry
from tests.cli.runs import redis_acker, redis_acker_on_terminal


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",), ("demo", "--help")], ids=" ".join)
def test_help_fits_into_80_columns(args: tuple[str, ...]) -> None:
    ran = redis_acker(*args, COLUMNS="80")

    printed = ran.stdout + ran.stderr
    assert printed.startswith("Usage: redis-acker")
    assert max(map(len, printed.splitlines())) <= 80


def test_every_command_has_a_whole_line_in_the_help() -> None:
    listed = redis_acker("--help", COLUMNS="80").stdout.partition("Commands:\n")[2].splitlines()

    assert listed
    assert [line for line in listed if len(line.split()) < 2 or line.endswith("...")] == []


def test_the_version_is_that_of_the_package() -> None:
    ran = redis_acker("--version")

    assert (ran.returncode, ran.stdout) == (0, f"redis-acker {version('redis-acker')}\n")


def test_an_unknown_command_is_refused_by_name() -> None:
    ran = redis_acker("dome")

    assert ran.returncode == 2
    assert "'dome'" in ran.stderr


def test_an_error_is_one_line_and_no_traceback() -> None:
    ran = redis_acker("demo", REDIS_ACKER_SERVER="/nonexistent/redis-server")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "Error: REDIS_ACKER_SERVER names '/nonexistent/redis-server', which is not an executable file.\n"
    )


def test_ctrl_c_ends_the_command_and_its_server_with_exit_code_130() -> None:
    with redis_acker_on_terminal("demo", "--messages", "10000000") as (process, terminal):
        terminal.read_until("have their final event")
        process.send_signal(signal.SIGINT)
        terminal.read_to_the_end()

    assert process.returncode == 130
    assert "Traceback" not in terminal.printed
    assert terminal.printed.endswith("Interrupted.\r\n")
    assert list(registry().glob(f"{process.pid}-*")) == []
