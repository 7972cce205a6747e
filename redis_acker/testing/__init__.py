"""Simulated time for tests: timeouts, pauses and ticks pass in milliseconds, on a fake server or on a real one.

May import: errors, clock, store, components.
"""

from redis_acker.testing.acker import SimulatedAcker as SimulatedAcker
from redis_acker.testing.acker import simulated_acker as simulated_acker
from redis_acker.testing.fake import fake_redis as fake_redis
from redis_acker.testing.feeder import FeederSpout as FeederSpout
from redis_acker.testing.time import SimulatedTime as SimulatedTime
