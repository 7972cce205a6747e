"""Waiting for a condition, in place of fixed sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], timeout_s: float = 10.0, poll_s: float = 0.02) -> T:
    """Call the predicate until its answer is true, and return that answer.

    An AssertionError after `timeout_s` shows the last answer; what the predicate raises is not caught.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"still {answer!r} after {timeout_s:g} s")
        time.sleep(poll_s)
