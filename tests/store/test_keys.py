"""One file spells all keys, and each of them belongs to one shard of one namespace."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from redis.crc import key_slot

import redis_acker
from redis_acker.store.keys import ShardKeys, key_patterns

PACKAGE = Path(redis_acker.__file__).parent
SOURCES = sorted([*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "spark_integration").rglob("*.py")])


def every_key(keys: ShardKeys) -> list[str]:
    spelt = [keys.meta, keys.spouts, keys.sequences, keys.expired_heads, *keys.with_streams([1, 2])]
    by_spout = (keys.lease, keys.began, keys.retries, keys.dead, keys.requests, keys.replayed, keys.withdrawn, keys.run)
    spelt += [
        keys.tracked_streams,
        *(spell(1, part) for spell in (keys.progress, keys.done_keys) for part in ("", "x")),
    ]
    return [*spelt, *(spell(1) for spell in by_spout), *map(keys.heads, range(4)), keys.failed_rows("run")]


def test_no_other_file_spells_a_key() -> None:
    for path in SOURCES:
        if path.name != "keys.py":
            text = path.read_text()
            assert not re.search(r"[\"']acker:", text), path
            assert not re.search(r"prefix\s*\+|\{[\w.]*prefix\}", text), path
            assert not re.search(r"[\"'](heads|vals|ids|finished|scratch|completions|failures):", text), path
    assert len(SOURCES) > 10


def test_every_method_of_the_keys_is_looked_at_here() -> None:
    names = {name for name in vars(ShardKeys) if not name.startswith("_")}
    assert names == {
        *(
            "meta",
            "counters",
            "began",
            "spout_states",
            "spouts",
            "sequences",
            "quarantine",
            "name_of",
            "expired_heads",
            "fixed",
            "with_streams",
            "stream",
            "completions",
        ),
        *("failures", "lease", "retries", "dead", "requests", "replayed", "withdrawn", "run", "failed_rows", "heads"),
        *("progress", "done_keys", "tracked_streams"),
    }


def test_patterns_match_the_keys_of_their_namespace_alone() -> None:
    of_blocks, of_all = key_patterns("ns", "blocks"), key_patterns("ns", "all")
    keys = ShardKeys("ns", 11, 3)
    assert all(any(fnmatchcase(key, one) for one in of_all) for key in every_key(keys))
    assert all(any(fnmatchcase(key, one) for one in of_blocks) for key in keys.with_streams([1, 2]))
    assert fnmatchcase(keys.failed_rows("run"), key_patterns("ns", "rows")[0])
    for key in (keys.dead(1), keys.retries(1), keys.spouts, *every_key(ShardKeys("ns2", 1, 3))):
        assert not any(fnmatchcase(key, one) for one in of_blocks)
    assert not any(fnmatchcase(key, one) for one in of_all for key in every_key(ShardKeys("ns2", 1, 3)))


def test_all_keys_of_a_shard_are_in_one_slot() -> None:
    for shard in range(5):
        assert len({key_slot(key.encode()) for key in every_key(ShardKeys("ns", shard, 3))}) == 1


def test_shards_are_in_slots_of_their_own() -> None:
    assert len({key_slot(ShardKeys("ns", shard, 3).meta.encode()) for shard in range(16)}) == 16


def test_no_two_keys_are_the_same() -> None:
    spelt = [
        key
        for namespace in ("a", "a1", "1")
        for shard in (0, 1, 10, 11)
        for key in set(every_key(ShardKeys(namespace, shard, 3)))
    ]
    assert len(spelt) == len(set(spelt))
