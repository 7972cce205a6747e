"""A typed, read-only look at a store: what the command line shows and an exporter of metrics can read.

May import: errors, store, retries.
"""
