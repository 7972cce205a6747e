"""Drives one spout: its messages become roots, and the final events of the roots become acks, replays and dead letters.

May import: errors, clock, store, components, retries.
"""
