"""What every command has in common: help, version, errors, exit codes, Ctrl-C, completion."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click
import pytest

from redis_acker.cli.main import COMMANDS
from tests.cli.looking import Market
from tests.cli.runs import SCRIPT, Terminal, killed_by_an_error, redis_acker
from tests.servers import start_server
from tests.waiting import wait_until

TABLE = {name: entry for group in COMMANDS.values() for name, entry in group.items()}

#: Commands that look at a store, with what they need beside its name.
LOOKING: dict[str, list[str]] = {"pending": [], "inspect": ["7"], "stats": [], "top": ["--once"], "ready": []}


def command(name: str) -> click.Command:
    module, _, attribute = TABLE[name][0].partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, click.Command)
    return found


def every_command() -> Iterator[tuple[str, ...]]:
    yield ()
    for name in TABLE:
        found = command(name)
        yield (name,)
        if isinstance(found, click.Group):
            yield from ((name, inner) for inner in found.commands)


@pytest.mark.parametrize("words", list(every_command()), ids=lambda words: " ".join(words) or "redis-acker")
def test_help_fits_into_80_columns_and_teaches_with_examples(words: tuple[str, ...]) -> None:
    ran = redis_acker(*words, "--help", COLUMNS="80")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"Usage: {' '.join(['redis-acker', *words])}")
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert f"  {' '.join(['redis-acker', *words[:1]])}" in ran.stdout.partition("\n")[2]


def test_help_is_what_one_gets_without_a_command() -> None:
    ran = redis_acker(COLUMNS="80")

    assert ran.returncode == 2
    assert (ran.stdout + ran.stderr).startswith("Usage: redis-acker")


@pytest.mark.parametrize("name", TABLE)
def test_the_list_of_commands_says_of_each_what_it_says_itself(name: str) -> None:
    found = command(name)

    assert found.name == name
    assert found.get_short_help_str(limit=80).rstrip(".") == TABLE[name][1].rstrip(".")
    assert f"  {name.ljust(10)}  {TABLE[name][1]}" in redis_acker("--help", COLUMNS="80").stdout


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"completion", "dead", "quarantine", "runs", "scripts"}))
def test_every_command_can_print_json(name: str) -> None:
    assert "--json" in {option for param in command(name).params for option in param.opts}


def test_the_version_is_that_of_the_package_and_comes_without_waiting_for_numpy_or_redis() -> None:
    ran = redis_acker("--version", PYTHONPROFILEIMPORTTIME="1")

    assert (ran.returncode, ran.stdout) == (0, f"redis-acker {version('redis-acker')}\n")
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "redis_acker.cli.main" in imported
    assert imported.isdisjoint({"numpy", "redis", "rich"})


def test_a_probe_does_not_wait_for_numpy() -> None:
    ran = redis_acker("health", REDIS_ACKER_URL="redis://127.0.0.1:1", PYTHONPROFILEIMPORTTIME="1")

    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "redis_acker.views.probes" in imported
    assert imported.isdisjoint({"numpy", "rich"})


def assert_one_line(ran: subprocess.CompletedProcess[str], code: int, said: str) -> None:
    assert (ran.returncode, ran.stdout) == (code, "")
    assert ran.stderr.startswith("Error: ")
    assert ran.stderr.count("\n") == 1
    assert said in ran.stderr


def test_an_unknown_command_is_refused_by_name() -> None:
    assert_one_line(redis_acker("dome"), 2, "'dome'")


def test_an_unknown_option_is_refused_by_name() -> None:
    assert_one_line(redis_acker("pending", "--old"), 2, "'--old'")


@pytest.mark.parametrize("name", LOOKING)
def test_a_wrong_url_is_one_line_with_exit_code_2(name: str) -> None:
    assert_one_line(redis_acker(name, *LOOKING[name], "--url", "http://x"), 2, "'http://x' is not a server's URL")


def test_no_url_is_one_line_with_exit_code_2() -> None:
    assert_one_line(redis_acker("pending", REDIS_ACKER_URL=""), 2, "No server was named")


@pytest.mark.parametrize("name", LOOKING)
def test_no_server_is_one_line_with_exit_code_3(name: str) -> None:
    ran = redis_acker(name, *LOOKING[name], "--url", "redis://127.0.0.1:1")

    assert_one_line(ran, 3, "The server redis://127.0.0.1:1 did not answer")


@pytest.mark.parametrize("name", LOOKING)
def test_an_unknown_namespace_is_one_line_with_exit_code_4(name: str, market: Market) -> None:
    ran = market.run(name, *LOOKING[name], "-n", "no-such")

    assert_one_line(ran, 4, "Namespace 'no-such' does not exist on these servers: check its name and the URL.")


@pytest.mark.parametrize("name", ["pending", "stats", "inspect"])
def test_a_name_that_no_namespace_can_have_is_one_line_with_exit_code_2(name: str, market: Market) -> None:
    assert_one_line(market.run(name, *LOOKING[name], "-n", "a b"), 2, "'a b'")


def test_a_wrong_password_is_one_line_with_exit_code_3() -> None:
    server = start_server("redis-7.0")
    with server.client() as client:
        client.config_set("requirepass", "geheim")
    ran = redis_acker("pending", "--url", server.url.replace("://", "://:falsch@"))
    server.stop()

    assert_one_line(ran, 3, "The server refused access")
    assert "falsch" not in ran.stderr


def test_a_server_that_cannot_be_started_is_one_line_with_exit_code_3() -> None:
    ran = redis_acker("pending", "--url", "embedded", REDIS_ACKER_SERVER="/nonexistent/redis-server")

    assert_one_line(ran, 3, "REDIS_ACKER_SERVER names '/nonexistent/redis-server', which is not an executable file.")


def test_a_warning_is_one_line_and_leaves_what_is_printed_alone() -> None:
    server = start_server("redis-7.0", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with pytest.warns(UserWarning, match="allkeys"):
        market = Market(server.url, "warned")
    ran = market.run("pending", "--json", "--limit", "1")
    market.acker.close()
    server.stop()

    assert (ran.returncode, ran.stdout.count("\n")) == (0, 1)
    assert ran.stderr.startswith("Warning: The server redis://")
    assert ran.stderr.count("\n") == 1


def test_ctrl_c_ends_a_command_with_one_line_and_exit_code_130(market: Market) -> None:
    command = [SCRIPT, "stats", "--interval", "1h", "--url", market.url, "-n", market.namespace]
    client: Any = market.acker.servers.client(0)
    others = {one["id"] for one in client.client_list()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stats:
        try:
            wait_until(lambda: any(one["id"] not in others for one in client.client_list()))
            stats.send_signal(signal.SIGINT)
            printed, said = stats.communicate(timeout=30)
        finally:
            stats.kill()

    assert (stats.returncode, printed, said) == (130, "", "Interrupted.\n")


def on_terminal(market: Market, *args: str, **environment: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    screen, keyboard = pty.openpty()
    named = {"REDIS_ACKER_URL": market.url, "REDIS_ACKER_NAMESPACE": market.namespace}
    wanted = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **named, **environment}
    with (
        subprocess.Popen([SCRIPT, *args], stdout=keyboard, stderr=keyboard, env=wanted) as process,
        killed_by_an_error(process),
    ):
        os.close(keyboard)
        terminal = Terminal(screen)
        terminal.read_to_the_end()
    os.close(screen)
    return terminal.printed


def test_a_terminal_gets_colour_and_lines_that_fit(market: Market) -> None:
    printed = on_terminal(market, "stats", "--interval", "1ms")

    assert "\x1b[1m" in printed
    assert "────" in printed
    for line in printed.splitlines():
        assert len(click.unstyle(line).rstrip()) <= 80


@pytest.mark.parametrize("unwanted", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_without_colour_gets_none(market: Market, unwanted: dict[str, str]) -> None:
    for args in (["doctor"], ["inspect", str(market.roots[7])]):
        assert "\x1b" not in on_terminal(market, *args, **unwanted)


def test_texts_of_the_store_are_not_obeyed_on_a_terminal_either(market: Market) -> None:
    market.start("odd", 1, message_ids=["[red]a\x1b]0;title\x07"])

    printed = on_terminal(market, "pending", "--spout", "odd", COLUMNS="120")
    assert "[red]a\\x1b]0;title\\x07" in printed
    assert "\x1b]0" not in printed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_names_the_command(shell: str) -> None:
    ran = redis_acker("completion", shell)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "_REDIS_ACKER_COMPLETE" in ran.stdout


def test_bash_completes_commands_and_options() -> None:
    for words, position, completed in (("pend", "1", "pending"), ("pending --old", "2", "--older-than")):
        ran = redis_acker(_REDIS_ACKER_COMPLETE="bash_complete", COMP_WORDS=f"redis-acker {words}", COMP_CWORD=position)
        assert ran.stdout == f"plain,{completed}\n"
    path = os.path.dirname(SCRIPT)
    script = f'PATH={path}:$PATH; eval "$(redis-acker completion bash)"; complete -p redis-acker'
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert "_redis_acker_completion" in ran.stdout
