"""Read-only views of the store, none of which blocks the server: counters, one root, pages of pending roots.

overview.py has all of a namespace at one moment, servers.py its servers, trace.py one root with what became of it.
"""

from redis_acker.views.counters import ShardStats, SpoutStats, Stats, read_stats
from redis_acker.views.heads import Head, read_head
from redis_acker.views.roots import PendingRoot, RootState, inspect, list_pending, oldest_first

__all__ = [
    "Head",
    "PendingRoot",
    "RootState",
    "ShardStats",
    "SpoutStats",
    "Stats",
    "inspect",
    "list_pending",
    "oldest_first",
    "read_head",
    "read_stats",
]
