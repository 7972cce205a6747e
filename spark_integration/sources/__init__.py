"""Redis Streams as a source and a sink of Spark, and what a namespace holds as DataFrames: `format("redis_acker")`.

May import: redis_acker, errors, workers.
"""
