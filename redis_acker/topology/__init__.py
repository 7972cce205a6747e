"""Topologies: the builder that wires components together, and the runner that works on their tuples in threads of this
process.

May import: errors, clock, store, components, retries, driver.
"""
