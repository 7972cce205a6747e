"""The page: everything under one heading, brought up to date once a second from the one reading that all share."""

from __future__ import annotations

from datetime import datetime, timezone

from nicegui import ui

from redis_acker.ui.desk import Desk
from redis_acker.ui.elements import CSS, text
from redis_acker.ui.now import Charts, RotatingMap, Tiles
from redis_acker.ui.poller import Poller
from redis_acker.ui.rights import Rights
from redis_acker.ui.stories import Letters, RootStory
from redis_acker.ui.tables import Tables
from redis_acker.views.texts import shown

REFRESH_S = 1.0


class Page:
    """One open page."""

    def __init__(self, namespace: str, poller: Poller, rights: Rights) -> None:
        self._poller = poller
        self._shown = -1
        ui.add_css(CSS)
        ui.colors(primary="#1f62ab", negative="#b3261e", positive="#1d7a3e")  # white text is readable on them
        desk = Desk(poller, rights)
        self._dark = ui.dark_mode(None)
        with ui.element("header").classes("top"):
            text("h1", f"redis-acker: {namespace}")
            self._state = text("span", "connecting").classes("state").props('role=status data-part="state"')
            ui.element("span").classes("spring")
            if rights.allows_actions:
                desk.lock()
            self._mode = ui.button("Dark: auto", on_click=self._turn_dark).props("outline dense no-caps")
        self._banner = text("p").classes("banner").props('role=alert data-part="banner"').style("margin: 0")
        self._banner.set_visibility(False)
        self._tiles, self._charts, self._map = Tiles(), Charts(), RotatingMap()
        self._tables = Tables(desk)
        RootStory(desk)
        self._letters = Letters(desk)
        ui.timer(REFRESH_S, self._update)

    def _turn_dark(self) -> None:
        following = {None: True, True: False, False: None}
        self._dark.value = following[self._dark.value]
        self._mode.set_text({None: "Dark: auto", True: "Dark: on", False: "Dark: off"}[self._dark.value])

    def _update(self) -> None:
        reading = self._poller.reading
        self._map.show(reading)  # counts down between two readings too
        if reading.number == self._shown:
            return
        self._shown = reading.number
        self._state.set_text("store away" if reading.away else "live" if reading.view else "connecting")
        self._state.classes(add="is-away") if reading.away else self._state.classes(remove="is-away")
        self._banner.set_visibility(reading.away is not None)
        if reading.away:
            since = datetime.fromtimestamp(reading.away_since_s, tz=timezone.utc).strftime("%H:%M:%SZ")
            older = "; the numbers below are older than that" if reading.view else ""
            self._banner.set_text(f"The store is away since {since}{older}. {shown(reading.away)}")
        for part in (self._tiles, self._charts, self._tables, self._letters):
            part.show(reading)
