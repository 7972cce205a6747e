"""A private server for demos, tests and work on one machine: it ends with its owner, even one that is killed.

May import: errors.
"""
