"""Small parts of the page. All texts are shown as text: nothing from the store is ever taken for HTML."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

try:
    from nicegui import ui
    from nicegui.elements.mixins.text_element import TextElement
except ImportError:
    raise ImportError("The page needs NiceGUI: run `pip install 'redis-acker[ui]'`.") from None

from redis_acker.views.texts import Cell, shown

CSS = (pkgutil.get_data(__name__, "page.css") or b"").decode()


def text(tag: str, content: str = "") -> TextElement:
    """An element that holds a text."""
    return TextElement(tag=tag, text=content)


def focus(field: ui.input | ui.select) -> None:
    """Gives the keyboard to a field."""
    field.run_method("focus")


@contextmanager
def panel(title: str, *, note: str = "") -> Iterator[None]:
    """A part of the page under a heading."""
    with ui.element("section").classes("panel").props(f'aria-label="{title}"'):
        text("h2", title)
        if note:
            text("p", note).classes("muted")
        yield


class Facts:
    """Names and values, as a list of definitions."""

    def __init__(self, pairs: Sequence[tuple[str, Cell]]) -> None:
        with ui.element("dl").classes("facts"):
            for name, value in pairs:
                text("dt", name)
                text("dd", shown(value))


class Tile:
    """One number."""

    def __init__(self, name: str) -> None:
        key = name.replace(" ", "-").replace("/", "-per-")
        with ui.element("dl").classes("tile").style("margin:0"):
            text("dt", name)
            self._value = text("dd", "-").props(f'data-tile="{key}"')

    def show(self, value: Cell) -> None:
        self._value.set_text(shown(value))


class Grid:
    """A table. Cells are texts, numbers on the right; rows beyond the first page are turned to."""

    def __init__(self, columns: Sequence[tuple[str, bool]], *, rows_a_page: int = 10) -> None:
        """columns: heading, and whether it holds numbers."""
        self._rows_a_page = rows_a_page
        self._table = ui.table(
            columns=[
                {"name": f"c{i}", "field": f"c{i}", "label": label, "align": "right" if is_number else "left"}
                for i, (label, is_number) in enumerate(columns)
            ],
            rows=[],
            row_key="key",
            pagination=rows_a_page,
        ).props(f'flat dense hide-bottom hide-header wrap-cells :rows-per-page-options="[{rows_a_page}]"')

    def show(self, rows: Sequence[Sequence[Cell]]) -> None:
        new = [{"key": at, **{f"c{i}": shown(cell) for i, cell in enumerate(row)}} for at, row in enumerate(rows)]
        if new != self._table.rows:
            self._table.rows = new
            for prop, is_set in (("hide-bottom", len(new) <= self._rows_a_page), ("hide-header", not new)):
                self._table.props(add=prop) if is_set else self._table.props(remove=prop)


def line_chart(name: str, series: Sequence[str]) -> Any:
    """A chart over time, one line for each series."""
    colours = ["#4c8dd6", "#3a9d5d", "#d0603c", "#9a6fd0"]
    return (
        ui.echart(
            {
                "animation": False,
                "color": colours,
                "textStyle": {"color": "#7d8794"},
                "legend": {"top": 0, "textStyle": {"color": "#7d8794"}, "data": list(series)},
                "grid": {"left": 8, "right": 42, "top": 34, "bottom": 4, "containLabel": True},
                "tooltip": {"trigger": "axis", "renderMode": "richText"},
                "useUTC": True,  # as all other times on the page
                "xAxis": {
                    "type": "time",
                    "name": "UTC",
                    "nameGap": 8,
                    "axisLabel": {"color": "#7d8794", "hideOverlap": True},
                },
                "yAxis": {
                    "type": "value",
                    "min": 0,
                    "minInterval": 1,
                    "axisLabel": {"color": "#7d8794"},
                    "splitLine": {"lineStyle": {"color": "rgba(127,127,127,.2)"}},
                },
                "series": [{"name": one, "type": "line", "showSymbol": False, "data": []} for one in series],
            }
        )
        .classes("chart")
        .props(f'role=img aria-label="{name}"')
    )
