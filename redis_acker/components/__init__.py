"""What users write and what they are given: spouts and bolts, tuples with their anchors, the collector that emits, acks
and fails.

May import: errors, store.
"""
