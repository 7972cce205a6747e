"""What a namespace does, as metrics for Prometheus. Needs the extra `metrics`.

May import: errors, store, views.
"""
