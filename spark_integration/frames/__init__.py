"""Tracked frames: DataFrames that know which messages each row comes from. Steps make a plan; a sink runs it.

May import: redis_acker, errors, workers, runs.
"""
