"""Who may act on the page: nobody, unless actions are allowed and the token is known."""

from __future__ import annotations

import asyncio
import hmac
import logging

WRONG_TOKEN_S = 1.0
"""How long a wrong token is answered late, one at a time: so guessing takes for ever."""

log = logging.getLogger(__name__)


class Rights:
    """Shared by all pages."""

    def __init__(self, token: str | None) -> None:
        """token: None if nobody may act."""
        self._token = token
        self._turn = asyncio.Lock()

    @property
    def allows_actions(self) -> bool:
        return self._token is not None

    async def knows(self, token: str) -> bool:
        """Whether this is the token."""
        async with self._turn:
            if self._token is not None and hmac.compare_digest(_bytes(token), _bytes(self._token)):
                return True
            log.warning("Somebody tried to act on the page with a wrong token.")
            await asyncio.sleep(WRONG_TOKEN_S)
            return False


def _bytes(token: str) -> bytes:
    return token.encode(errors="surrogatepass")  # a browser may send half a character
