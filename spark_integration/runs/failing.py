"""How rows fail: a worker fails the roots behind them, or notes their keys for the driver, which finds the roots when
the job ends. And whether the store may have lost such notes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redis_acker import Acker
from redis_acker.errors import StoreLost, Unreadable
from redis_acker.store.hashes import json_of
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.streams import MAX_ERROR_BYTES, Cause
from spark_integration.runs.tracking import NOTES_EXPIRE_MS, Failed, Keys, KeyTable, KeyTables
from spark_integration.workers import StoreAddress

_BEGUN = "begun"

_NOT_READABLE = Cause("", "why it failed cannot be read: another program wrote to the store")
_KEY = re.compile(rb"-?\d{1,19}")


def _key_of(key: bytes, name: bytes) -> tuple[int, bytes]:
    if not _KEY.fullmatch(key) or not -(1 << 63) <= int(key) < 1 << 63:
        raise Unreadable("it is not the key of a row")
    return int(key), name


def _cause_of(name: bytes, text: bytes) -> tuple[bytes, Cause]:
    if name == _BEGUN.encode():
        return name, _NOT_READABLE
    match json_of(text):
        case [str(component), str(error), bool(fatal)]:
            return name, Cause(component, error, fatal)
    raise Unreadable("it is not the cause of a failure")


class NotedRows:
    """The keys of failed rows, each with a short name of its cause: a text is stored once, whoever has it."""

    def __init__(self, acker: Acker, name: str) -> None:
        self._rows = acker.shards.failed_rows(name)
        self._causes = acker.shards.failed_rows(f"{name}:causes")
        self._quarantine = Quarantine(acker.shards)

    def begin(self) -> None:
        """Leaves a mark, by which read() knows that nothing was lost since."""
        self._causes.put({_BEGUN: ""})
        self.keep()

    def add(self, keys: Keys, cause: Cause) -> None:
        text = json.dumps([cause.component, cause.error[:MAX_ERROR_BYTES], cause.fatal])
        name = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        self._causes.put({name: text})  # first: a row without its cause could not be read
        self._rows.put(dict.fromkeys(map(str, keys.tolist()), name))
        self.keep()

    def keep(self) -> None:
        """Restarts the time after which the notes are forgotten."""
        self._rows.expire(NOTES_EXPIRE_MS)
        self._causes.expire(NOTES_EXPIRE_MS)

    def read(self) -> dict[Cause, Keys]:
        """The keys, by cause. Raises StoreLost if notes may be missing."""
        causes = dict(self._quarantine.readable(self._causes, _cause_of))
        if causes.pop(_BEGUN.encode(), None) is None:
            raise StoreLost(
                "The store has lost what workers noted about rows that failed, so nothing more of this run counts as "
                "done: run it again."
            )
        found: dict[Cause, list[int]] = {}
        for key, name in dict(self._quarantine.readable(self._rows, _key_of)).items():
            found.setdefault(causes.get(name, _NOT_READABLE), []).append(key)
        return {cause: np.array(keys, dtype=np.int64) for cause, keys in found.items()}

    def __len__(self) -> int:
        return len(self._rows)

    def delete(self) -> None:
        self._rows.delete()
        self._causes.delete()


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


@dataclass(frozen=True)
class Tracking:
    """How a worker fails rows, by the keys that they carry."""

    store: StoreAddress
    run: str
    tables: KeyTables
    """Of the inputs whose roots workers can find themselves."""
    is_replay: bool = False
    """Whether all rows are of messages that have failed before."""

    def connect(self) -> None:
        """Opens this worker's connection, so that a store out of reach is noticed before any row fails."""
        self.store.acker()

    def fail(self, failed: Failed) -> None:
        """Fails the roots behind these keys, or leaves them to the driver. Doing it again changes nothing."""
        fail_keys(self.store.acker(), self.run, self.tables.value, failed)


def fail_keys(acker: Acker, run: str, tables: Sequence[KeyTable], failed: Failed) -> None:
    """Fails the roots behind some keys. Keys that are in no table are noted: the driver finds out whether they are
    those of messages or of groups."""
    for cause, some in failed.items():
        keys = np.unique(np.concatenate(some))
        for table in tables:
            roots, found = table.find(keys)
            if len(roots):
                acker.fail(roots, component=cause.component, error=cause.error, fatal=cause.fatal)
                if table.notes:
                    NotedRows(acker, f"{run}:{table.notes}").add(np.unique(keys[found]), cause)
            keys = np.delete(keys, found)
        if len(keys):
            NotedRows(acker, run).add(keys, cause)
