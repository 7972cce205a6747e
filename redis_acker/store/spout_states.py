"""What programs tell each other about spouts: that one is to pause, and how many messages wait in its source."""

from __future__ import annotations

from dataclasses import dataclass

from redis_acker.store.acker import Acker
from redis_acker.store.hashes import is_number
from redis_acker.store.shards import Shards

_PAUSED, _LAG = "paused", "lag"


@dataclass(frozen=True)
class SpoutState:
    """What is said of one spout."""

    paused_ms: int | None = None
    """Since when it is paused, by the server's clock; None if it is not."""
    lag: int | None = None
    """Messages that wait in its source, as its driver said last; None if it cannot tell."""


class SpoutStates:
    """Drivers look about once a second. What is said holds until it is said otherwise, also for drivers to come."""

    def __init__(self, shards: Shards) -> None:
        self._shards, self._stored = shards, shards.spout_states()

    def pause(self, number: int) -> bool:
        """Pauses a spout. False if it is paused already."""
        if self.is_paused(number):
            return False
        self._stored.put({f"{number} {_PAUSED}": str(self._shards.time_ms(0))})
        return True

    def resume(self, number: int) -> bool:
        """False if it was not paused."""
        return bool(self._stored.remove([f"{number} {_PAUSED}"]))

    def is_paused(self, number: int) -> bool:
        since_ms = self._stored.get(f"{number} {_PAUSED}")
        return since_ms is not None and is_number(since_ms)

    def note_lag(self, number: int, lag: int | None) -> None:
        field = f"{number} {_LAG}"
        if lag is None:
            self._stored.remove([field])
        else:
            self._stored.put({field: str(lag)})

    def all(self) -> dict[int, SpoutState]:
        """Of every spout of which something is said."""
        found: dict[int, dict[str, int]] = {}
        for field, value in self._shards.spout_states_said():
            number, _, word = field.partition(b" ")
            if is_number(number) and is_number(value):  # another program may have written there
                found.setdefault(int(number), {})[word.decode(errors="replace")] = int(value)
        return {number: SpoutState(said.get(_PAUSED), said.get(_LAG)) for number, said in found.items()}


def spouts_called(acker: Acker, name: str) -> dict[str, int]:
    """The numbers of the spouts that a name stands for: the spout of that name, or all tasks of the component. Raises
    UnknownSpout where there is none."""
    known = acker.known_spouts()
    if name in known:
        return {name: known[name]}
    tasks = [one for one in sorted(known) if one.rpartition("/")[0] == name and one.rpartition("/")[2].isdigit()]
    return {one: known[one] for one in tasks} or acker.known_spouts(name)  # which says that there is none
