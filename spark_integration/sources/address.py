"""Where the servers are. It travels inside pickled objects alone, so that no plan, log or error shows a password."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redis_acker import Acker
from redis_acker.errors import BadInput
from redis_acker.spouts.user_streams import UserStreams
from redis_acker.store.connect import URL_VARIABLE, open_servers
from redis_acker.store.urls import hide_password

_open: dict[tuple[int, object], UserStreams | Acker] = {}
"""By process and what is connected to: a forked worker opens its own, and all tasks of a worker share it."""


@dataclass(frozen=True)
class ServerAddress:
    """The URLs of the servers."""

    _urls: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, url: str | Sequence[str] | None) -> ServerAddress:
        servers = open_servers(url, str)  # connects to nothing yet
        try:
            if "embedded" in (url, os.environ.get(URL_VARIABLE) if url is None else None):
                raise BadInput(
                    "Spark's processes cannot share an embedded server of one of them: pass its url instead."
                )
            return cls(tuple(servers.urls))
        finally:
            servers.close()

    @classmethod
    def from_options(cls, options: Mapping[str, str], registered: ServerAddress | None) -> ServerAddress:
        """The one of the option `url`, the one that was registered, or that of the environment."""
        url = options.get("url")
        if url is None:
            return registered or cls.of(None)
        if hide_password(url) != url:
            raise BadInput(
                "The option 'url' holds a password, and Spark shows options: call register(spark, url=...), or set "
                f"{URL_VARIABLE} for the driver."
            )
        return cls.of(url)

    def streams(self, names: Sequence[str]) -> UserStreams:
        """The connection of this process to streams."""
        place = os.getpid(), (self, *names)
        found = _open.get(place)
        if not isinstance(found, UserStreams):
            found = _open[place] = UserStreams(self._urls, names)
        return found

    def acker(self, namespace: str) -> Acker:
        """The Acker of this process for a namespace that exists."""
        place = os.getpid(), (self, namespace)
        found = _open.get(place)
        if not isinstance(found, Acker):
            found = _open[place] = Acker(self._urls, namespace=namespace, create=False)
        return found
