"""Topologies on Spark: what is sent to executors, what they do with it, and what comes back, one micro-batch at a time.

May import: redis_acker, errors, workers.
"""
