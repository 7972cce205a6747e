"""A clock in place of the server's, for tests that let time pass."""

from redis_acker.clock import SystemClock


class Clock(SystemClock):
    """Tells a time that stands still until it is told otherwise. Threads wait by the clock of the machine."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def time_ms(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms
