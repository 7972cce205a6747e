"""Spouts for Redis streams, Kafka, RabbitMQ, files of JSON lines, Python iterables, and what other programs hand over.

May import: errors, store, components.
"""
