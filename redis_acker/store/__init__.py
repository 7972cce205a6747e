"""The ledger: every root from its init to its one final event, in scripts that run on Redis.

`acker` is what programs call; `shards` is the one door to the scripts in lua/; `event_reader` reads final events back.

May import: errors, clock, server.
"""
