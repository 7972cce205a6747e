"""Spouts for Redis streams, files of JSON lines, RabbitMQ, and anything that can be iterated over.

May import: errors, store, components.
"""
