"""What commands print: values, tables, and JSON."""

from typing import Any

import click
import pytest

from redis_acker.cli.options import DURATION, ROOT
from redis_acker.cli.output import Output
from redis_acker.views.texts import byte_size, duration, root_text, shown


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (99_900, "99.9 s"),
        (99_960, "1m 40s"),
        (3_599_000, "59m 59s"),
        (3_600_000, "1h 0m"),
        (90_061_000, "1d 1h"),
        (-61_500_000, "-17h 5m"),
        (None, "-"),
    ],
)
def test_durations_are_short_and_exact_enough(ms: float | None, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 KB"), (2.5e9, "2.5 GB"), (5e15, "5,000.0 TB"), (None, "-")],
)
def test_sizes_are_short(size: float | None, text: str) -> None:
    assert byte_size(size) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (1234567, "1,234,567"),
        (True, "yes"),
        ("plain", "plain"),
        ("naïve 漢字 🙂", "naïve 漢字 🙂"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m\x9b31m\x7f", "\\x1b[31m\\x9b31m\\x7f"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\udcff", "\\udcff"),
        ("[bold]", "[bold]"),
    ],
)
def test_no_value_can_change_a_terminal(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("0", 0),
        ("18446744073709551615", (1 << 64) - 1),
        ("-1", (1 << 64) - 1),
        ("-9223372036854775808", 1 << 63),
        ("0xff", 255),
        ("0XFFFFFFFFFFFFFFFF", (1 << 64) - 1),
        ("00000000000000ff", 255),
        ("1234567890123456", 1234567890123456),
        (" 7 ", 7),
    ],
)
def test_roots_are_read_in_every_form(text: str, root: int) -> None:
    assert ROOT.convert(text, None, None) == root
    assert ROOT.convert(root_text(root), None, None) == root


@pytest.mark.parametrize(
    "text", ["", "x", "ff", "0x", "1e5", "18446744073709551616", "-9223372036854775809", "0x1" + "0" * 16]
)
def test_what_is_no_root_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a root"):
        ROOT.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90", 90_000),
        ("90s", 90_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("0.5s", 500),
        ("250ms", 250),
    ],
)
def test_durations_are_read_with_their_unit(text: str, ms: int) -> None:
    assert DURATION.convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 minutes", "1w"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        DURATION.convert(text, None, None)


def test_a_table_is_aligned_by_its_first_rows_and_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", 1), *[("b", 22)] * 150, ("much longer", 333)]

    assert Output(as_json=False).table(("name", "count"), rows) == 152
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["name  count", "a         1", "b        22"]
    assert lines[-1] == "much longer    333"


def test_wide_characters_keep_the_columns_in_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).table(("id", "n"), [("漢字", "x"), ("ab", "y")])

    assert capsys.readouterr().out.splitlines() == ["id    n", "漢字  x", "ab    y"]


def test_json_is_ascii_on_one_line_with_schema_and_kind_first(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).document("thing", {"text": "ä\n\u2028"})

    assert capsys.readouterr().out == '{"schema": 1, "kind": "thing", "text": "\\u00e4\\n\\u2028"}\n'


def test_lines_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Any:
        yield {"n": 1}
        assert capsys.readouterr().out == '{"schema": 1, "kind": "row", "n": 1}\n'
        yield {"n": 2}

    assert Output(as_json=True).lines("row", rows()) == 2


def test_a_remark_does_not_mix_with_what_a_pipe_carries(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).note("more")
    Output(as_json=True).note("silent")

    assert capsys.readouterr() == ("", "more\n")


def test_progress_is_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=False).progress(10, "work") as progress:
        progress.advance(10)

    assert capsys.readouterr() == ("", "")
