"""Pauses and resumes spouts."""

from __future__ import annotations

from nicegui import ui

from redis_acker.store.spout_states import SpoutStates, spouts_called
from redis_acker.ui.desk import Desk
from redis_acker.views.overview import Overview
from redis_acker.views.texts import shown

MOST_SPOUTS = 500
"""Among which a page may choose: those that are paused, then the busiest."""


class Pauses:
    """A choice of spouts, and the button for the one that is chosen."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._paused: set[str] = set()
        self._names: list[str] = []
        with ui.row().style("align-items: center; width: 100%").props('data-part="pauses"') as self._row:
            self._spout = ui.select([], label="Spout").props("outlined dense").style("min-width: 200px")
            self._spout.on_value_change(self._show_button)
            self._button = ui.button("Pause", on_click=self._act).props("no-caps")
        self._row.set_visibility(desk.is_unlocked)
        desk.on_unlock(self._unlock)

    def _unlock(self) -> None:
        self._row.set_visibility(True)

    def show(self, view: Overview) -> None:
        self._paused = {one.name for one in view.spouts if one.paused_ms is not None}
        first = sorted(view.spouts, key=lambda one: (one.paused_ms is None, -one.stats.pending, one.name))
        names = sorted(one.name for one in first[:MOST_SPOUTS])
        if names != self._names:
            self._names = names
            chosen = self._spout.value if self._spout.value in names else names[0] if names else None
            self._spout.set_options({name: shown(name) for name in names}, value=chosen)
        self._show_button()

    def _show_button(self) -> None:
        self._button.set_text("Resume" if self._spout.value in self._paused else "Pause")
        self._button.set_enabled(self._spout.value is not None)

    async def _act(self) -> None:
        spout = self._spout.value
        if spout is None:
            return
        name, resumes = shown(spout), spout in self._paused

        def act() -> str:
            acker = self._desk.poller.acker
            states, number = SpoutStates(acker.shards), spouts_called(acker, spout)[spout]
            if resumes:
                return f"Spout {name} {'is resumed' if states.resume(number) else 'was not paused'}."
            return f"Spout {name} {'is paused' if states.pause(number) else 'was paused already'}."

        question = (
            f"Pause spout {name}? It hands out no messages and starts no replays until it is resumed. A run of a "
            "tracked frame is not paused."
        )
        if await self._desk.act(
            f"Resume spout {name}?" if resumes else question, "Resume" if resumes else "Pause", act
        ):
            self._paused ^= {spout}
            self._show_button()
