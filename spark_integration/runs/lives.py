"""Whether the servers of a namespace are those that a run began with, and have not been restarted since."""

from __future__ import annotations

from redis_acker import Acker
from redis_acker.errors import StoreLost


class ServerLives:
    """The lives of the servers that a run began with. A server that was restarted, or a replica that took its place,
    may lack the last writes, and among them that a row has failed. No mark in the store shows that: it is older."""

    def __init__(self, acker: Acker) -> None:
        self._shards = acker.shards
        self.at_first = self._shards.server_lives()

    def check(self) -> None:
        """Raises StoreLost unless all that servers were told since is there, or was when it was read before this."""
        now = self._shards.server_lives()
        if changed := [shard for shard, life in enumerate(now) if life != self.at_first[shard]]:
            raise StoreLost(
                f"The server of shard {changed[0]} was restarted, or replaced by another, while the job ran, and may "
                "have lost that rows have failed, so nothing more of this run counts as done: run it again."
            )
