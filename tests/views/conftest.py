"""Fixtures: an acker on a fake server, as the tests of the store use it."""

from tests.store.conftest import acker

__all__ = ["acker"]
