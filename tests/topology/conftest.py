"""Fixtures: the stores that the tests of components use."""

from tests.components.conftest import any_store, store

__all__ = ["any_store", "store"]
