"""Tracked streams: each micro-batch of a streaming query is a run, and what failed comes again beside them.

May import: redis_acker, errors, workers, runs, frames.
"""
