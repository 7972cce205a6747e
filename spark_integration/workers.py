"""What Python workers of Spark know of the store: one connection for each worker process, opened when it is needed."""

from __future__ import annotations

import os
import pickle
import socket
from dataclasses import dataclass, field

from redis_acker import Acker
from redis_acker.errors import AckerError

_open_ackers: dict[tuple[int, bytes], Acker] = {}
"""By process and store: a forked worker opens its own, and all tasks of a worker share it."""


class StoreOutOfReach(AckerError):
    """Raised when the driver reaches the store but a Python worker does not."""


@dataclass(frozen=True)
class StoreAddress:
    """How a worker reaches the store. It travels in closures only: its repr, and so every plan, shows no password."""

    _pickled: bytes = field(repr=False)
    driver_host: str

    @classmethod
    def of(cls, acker: Acker) -> StoreAddress:
        return cls(pickle.dumps(acker), socket.gethostname())

    def acker(self) -> Acker:
        """The Acker of this worker process."""
        place = os.getpid(), self._pickled
        if place not in _open_ackers:
            try:
                _open_ackers[place] = pickle.loads(self._pickled)
            except AckerError as error:
                raise StoreOutOfReach(
                    f"The Spark worker on host {socket.gethostname()!r} cannot use the store, though the driver on "
                    f"host {self.driver_host!r} can: {error}"
                ) from error
        return _open_ackers[place]
