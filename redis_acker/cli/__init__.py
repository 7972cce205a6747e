"""The command line: `redis-acker`. A module for each command, and what they share; `main` lists them.

Commands import what they need when they are called, so that a probe waits for nothing it does not use.

May import: errors, server, store, retries, spouts, views, metrics, ui.
"""
