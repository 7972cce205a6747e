"""One root's story, and the dead letters with their history."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from redis_acker.errors import BadInput
from redis_acker.retries.book import DeadLetter, FailedAttempt
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.ui.desk import Desk
from redis_acker.ui.elements import Facts, Grid, focus, panel, text
from redis_acker.ui.poller import Reading
from redis_acker.views.texts import cut, id_text, moment, root_of, root_text, shown
from redis_acker.views.trace import RootTrace, story, trace

LETTERS_A_PAGE = 20

MOST_CHARACTERS = 200
"""Of a message id or an error, in what is not the letter itself: a question without buttons in sight is no question."""

MOST_SPOUTS = 500
"""Spouts with dead letters among which a page may choose."""


class RootStory:
    """Looks a root up."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._root: int | None = None
        with panel("One root", note="Decimal digits, 0x and hex digits, or 16 hex digits."):
            with ui.row().style("align-items: center; width: 100%"):
                self._input = ui.input("Root").props("outlined dense clearable").style("flex: 1 1 240px")
                self._input.on("keydown.enter", self._look)
                ui.button("Look up", on_click=self._look).props("no-caps")
            self._found = ui.element("div").props('aria-live=polite data-part="story"').style("width: 100%")
        with self._found:
            self._actions = ui.row()
        desk.on_unlock(self._unlock)

    def _unlock(self) -> None:
        self._actions.set_visibility(True)

    async def _look(self) -> None:
        try:
            self._root = root_of(self._input.value or "")
        except BadInput as error:
            self._root = None
            self._show([("mistake", str(error))], [])
            return
        await self._look_again()

    async def _look_again(self) -> None:
        root = self._root
        found = None if root is None else await self._desk.ask(lambda: trace(self._desk.poller.acker, root))
        if found is not None:
            buckets = self._desk.poller.acker.settings.buckets
            self._show(list(story(found, buckets)), found.history, found)

    def _show(
        self,
        facts: list[tuple[str, str | int | float | None]],
        history: list[FailedAttempt],
        found: RootTrace | None = None,
    ) -> None:
        self._found.clear()
        with self._found:
            Facts(facts)
            show_history(history)
            self._actions = ui.row()
            self._actions.set_visibility(self._desk.is_unlocked)
            if self._desk.rights.allows_actions and found is not None and found.state.state == "pending":
                with self._actions:
                    ui.button("Fail", on_click=lambda: self._fail(found.state.root), color="negative").props("no-caps")
                    ui.button("Extend", on_click=lambda: self._extend(found.state.root)).props("no-caps")

    async def _fail(self, root: int) -> None:
        def fail() -> str:
            failed = self._desk.poller.acker.fail([root], component="page", error="failed by hand").failed
            return f"Root {root_text(root)} {'has failed' if failed else 'was finished already'}."

        question = f"Fail root {root_text(root)}? Its message is replayed or given up."
        await self._act(question, "Fail", fail)

    async def _extend(self, root: int) -> None:
        def extend() -> str:
            extended = self._desk.poller.acker.extend([root])
            return f"Root {root_text(root)} {'has its whole timeout again' if extended else 'is not pending'}."

        await self._act(f"Give root {root_text(root)} its whole timeout again?", "Extend", extend)

    async def _act(self, question: str, verb: str, action: Callable[[], str]) -> None:
        if await self._desk.act(question, verb, action):
            await self._look_again()
            focus(self._input)  # the button that had the keyboard is gone


class Letters:
    """Dead letters, a page at a time, however many there are."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._cursor = b"0"
        self._spouts: list[str] = []
        self._counts: dict[str, int] = {}
        self._known = 0
        """How many letters the chosen spout had when the first page was read."""
        self._rows: list[ui.row] = []
        """Buttons of the letters that are shown."""
        desk.on_unlock(self._unlock)
        with panel("Dead letters", note="Messages that were given up after their last attempt."):
            with ui.row().style("align-items: center; width: 100%"):
                self._spout = ui.select([], label="Spout").props("outlined dense").style("min-width: 200px")
                self._spout.on_value_change(self._first)
                ui.button("First page", on_click=self._first).props("flat no-caps")
                self._next = ui.button("Next page", on_click=self._turn).props("flat no-caps")
            self._news = text("p").classes("muted").props('data-part="news"').style("margin: 8px 0 0")
            self._list = ui.element("div").props('data-part="letters"').style("width: 100%; margin-top: 8px")

    def show(self, reading: Reading) -> None:
        if reading.view is None or reading.away:
            return
        dead = sorted((one for one in reading.view.spouts if one.dead), key=lambda one: -one.dead)[:MOST_SPOUTS]
        names = [one.name for one in dead]
        self._counts = {one.name: one.dead for one in dead}
        self._show_news()
        if names != self._spouts:
            self._spouts = names
            chosen = self._spout.value if self._spout.value in names else names[0] if names else None
            self._spout.set_options({name: shown(name) for name in names}, value=chosen)

    def _show_news(self) -> None:
        """Says when there are more letters than there were. They are not read by themselves: the list would move away
        under the eyes and the keyboard of its reader."""
        count = self._counts.get(self._spout.value, 0)
        self._known, more = min(self._known, count), count - self._known
        found = f"{more:,} more since this list was read: First page reads it again." if more > 0 else ""
        self._news.set_text(found)

    def _unlock(self) -> None:
        for row in self._rows:
            row.set_visibility(True)

    async def _first(self) -> None:
        self._cursor = b"0"
        self._known = self._counts.get(self._spout.value, 0)
        self._show_news()
        await self._turn()

    async def _turn(self) -> None:
        spout = self._spout.value
        if spout is None:
            self._list.clear()
            return
        cursor = self._cursor
        found = await self._desk.ask(
            lambda: DeadLetters(self._desk.poller.acker, spout=spout).page(spout, cursor, LETTERS_A_PAGE)
        )
        if found is None:
            return
        self._cursor, letters = found
        self._next.set_enabled(self._cursor != b"0")
        self._list.clear()
        self._rows.clear()
        with self._list:
            for letter in letters:
                self._show(letter)
            if not letters:
                text("p", "None on this page.").classes("muted")

    def _show(self, letter: DeadLetter) -> None:
        last = letter.history[-1] if letter.history else None
        where = f" in {last.component}" if last and last.component else ""
        cause = "" if last is None else f"{last.reason}{where} at attempt {last.attempt}: {last.error}"
        whole_name = shown(id_text(letter.message_id))
        name, caption = cut(whole_name, MOST_CHARACTERS), cut(shown(cause), MOST_CHARACTERS)
        with ui.expansion(name, caption=caption).props('dense switch-toggle-side data-part="letter"') as box:
            box.style("width: 100%; overflow-wrap: anywhere")
            box.props["toggle-aria-label"] = f"{name}: {caption}"  # as a value: it may hold quotes
            Facts(
                [
                    ("message id", whole_name),
                    ("spout", letter.spout),
                    ("fatal", "yes" if letter.fatal else "no"),
                    ("values", None if letter.payload is None else str(letter.payload)[:2000]),
                ]
            )
            show_history(letter.history)
            if self._desk.rights.allows_actions:
                self._buttons(letter, name)

    def _buttons(self, letter: DeadLetter, name: str) -> None:
        from_source = letter.payload is None or not letter.is_readable

        def replay() -> str:
            done = DeadLetters(self._desk.poller.acker, spout=letter.spout).replay(letter, from_source=from_source)
            return f"Message {name} {'is given back to its driver' if done else 'is gone or was changed'}."

        def purge() -> str:
            done = DeadLetters(self._desk.poller.acker, spout=letter.spout).remove(letter)
            return f"Dead letter {name} {'is purged' if done else 'was gone already'}."

        async def act(question: str, verb: str, action: Callable[[], str]) -> None:
            if await self._desk.act(question, verb, action):
                await self._first()
                focus(self._spout)  # the button that had the keyboard is gone

        with ui.row() as row:
            ui.button("Replay", on_click=lambda: act(f"Replay message {name}?", "Replay", replay)).props("no-caps")
            question = f"Delete the dead letter of {name} for good?"
            ui.button("Purge", on_click=lambda: act(question, "Purge", purge), color="negative").props("no-caps")
        row.set_visibility(self._desk.is_unlocked)
        self._rows.append(row)


def show_history(history: list[FailedAttempt]) -> None:
    if not history:
        return
    text("h3", "Failed attempts")
    columns = [("attempt", True), *((name, False) for name in ("reason", "when", "component", "error"))]
    Grid(columns).show(
        [(one.attempt, one.reason, moment(one.at_ms), one.component or None, one.error or None) for one in history]
    )
