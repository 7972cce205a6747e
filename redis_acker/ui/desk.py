"""What the parts of a page that ask the store have in common: they ask in a thread, show errors as text, and act only
with the right to and after one question."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nicegui import run, ui

from redis_acker.errors import AckerError
from redis_acker.ui.elements import text
from redis_acker.ui.poller import Poller
from redis_acker.ui.rights import Rights
from redis_acker.views.texts import shown

T = TypeVar("T")

log = logging.getLogger(__name__)


class Desk:
    """One page's way to the store."""

    def __init__(self, poller: Poller, rights: Rights) -> None:
        self.poller, self.rights = poller, rights
        self.is_unlocked = False
        """Whether this page knows the token."""
        self._on_unlock: list[Callable[[], None]] = []

    def on_unlock(self, callback: Callable[[], None]) -> None:
        self._on_unlock.append(callback)

    async def ask(self, question: Callable[[], T]) -> T | None:
        """The answer, or None after an error, which is shown."""
        try:
            return await run.io_bound(question)
        except AckerError as error:
            ui.notify(shown(str(error)), type="negative", multi_line=True, timeout=10_000, close_button="Close")
            return None

    async def act(self, question: str, verb: str, action: Callable[[], str]) -> bool:
        """Asks once, acts, and says what was done. Nothing happens on a page that does not know the token."""
        if not (self.rights.allows_actions and self.is_unlocked) or not await _confirmed(question, verb):
            return False
        done = await self.ask(action)
        if done is None:
            return False
        log.info("On the page: %s", done)
        ui.notify(shown(done), type="positive")
        return True

    def lock(self) -> None:
        """Shows how to get the right to act."""
        with ui.dialog().props('aria-label="Allow actions"') as dialog, ui.card():
            text("h2", "Allow actions on this page").style("font-size: 1.1rem; line-height: 1.4; margin: 0")
            token = ui.input("Token", password=True).props("autofocus outlined dense").style("width: 100%")
            wrong = text("p").classes("wrong").props("role=alert")
            with ui.row():
                ui.button("Unlock", on_click=lambda: unlock()).props("no-caps")
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")

        async def unlock() -> None:
            self.is_unlocked = await self.rights.knows(token.value or "")
            token.set_value("")
            wrong.set_text("" if self.is_unlocked else "That is not the token.")
            if self.is_unlocked:
                # It stays where the keyboard is when the dialog closes, so it is not disabled.
                button.set_text("Actions are allowed")
                button.props("aria-disabled=true")
                dialog.close()
                for callback in self._on_unlock:
                    callback()

        def ask_for_token() -> None:
            if not self.is_unlocked:
                dialog.open()

        token.on("keydown.enter", unlock)
        button = ui.button("Allow actions", on_click=ask_for_token).props("outline dense no-caps")


async def _confirmed(question: str, verb: str) -> bool:
    with ui.dialog().props("role=alertdialog") as dialog, ui.card():
        dialog.props["aria-label"] = question  # as a value: it may hold quotes
        text("p", question).style("overflow-wrap: anywhere; margin: 0")
        with ui.row():
            ui.button(verb, on_click=lambda: dialog.submit(True)).props("no-caps")
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps autofocus")
    answer: Awaitable[object] = dialog
    # Not before it is hidden: only then the browser gives the keyboard back to the button that asked.
    dialog.on("hide", dialog.delete)
    return bool(await answer)
