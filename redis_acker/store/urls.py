"""URLs of servers as texts: what is one, and what may be shown of it. Passwords are in them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from redis_acker.errors import BadInput, escaped

FORMS = (
    "redis://host:port/db, rediss://... (TLS), unix:///path, redis+cluster://host:port, "
    "redis+sentinel://host:port,host:port/service, or embedded"
)

_PLAIN = re.compile(r"(?:[a-z+]{1,20}://)?[\w.:/,-]{0,100}", re.ASCII)
"""What holds no secret, even if it is no URL: neither a login nor options."""

_SHOWN_OPTION = re.compile(
    r"(?:db|username|protocol|client_name|max_connections|health_check_interval|socket_\w+"
    r"|ssl_(?:ca_certs|ca_path|certfile|keyfile|cert_reqs|check_hostname))=[\w./-]{0,200}",
    re.ASCII,
)
"""Options that are shown: what else stands there may be a password, under whatever name."""


def hide_password(url: str) -> str:
    """A URL without its passwords, as it may be shown."""
    scheme, mark, rest = url.partition("://")
    address, question, query = rest.partition("?")
    if "@" in query or (mark and "#" in rest):  # of a login, or of an option: nobody knows where that ends
        return escaped(f"{scheme}{mark}***")
    address = re.sub(r"^([^:@/]*):.*@", r"\1:***@", address, flags=re.DOTALL)
    shown = [pair if _SHOWN_OPTION.fullmatch(pair) else "***" for pair in query.split("&") if pair]
    return escaped(scheme + mark + address + question + "&".join(shown))


def check_url(url: str) -> None:
    """Refuses what does not parse, and a # or / that is not a separator but in the middle of a password."""
    try:
        parts = urlsplit(url)
        is_whole = not parts.fragment and ("@" not in parts.path or url.startswith("unix:///"))
    except ValueError:
        is_whole = False
    if not is_whole:
        raise not_a_url("a server's URL", url)


def not_a_url(what: str, url: str, error: Exception | None = None) -> BadInput:
    """Shows what was given only if there cannot be a password in it."""
    if not _PLAIN.fullmatch(url):
        return BadInput(f"What was given is not {what}, and is not shown because it may hold a password: use {FORMS}.")
    why = f" ({error})" if error else ""
    return BadInput(f"{url!r} is not {what}{why}: use {FORMS}.")
