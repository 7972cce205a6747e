"""One run of a Spark job: a root for each message of its inputs, kept alive while Spark works, and their final events.

May import: redis_acker, errors, workers.
"""
