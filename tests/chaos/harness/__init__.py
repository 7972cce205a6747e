"""Loads that keep a log of their own, faults that come while they run, and a verdict that compares the log with what
the store and the spouts say. `make chaos` runs it."""
