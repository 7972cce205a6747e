"""A live page on a namespace, in a browser. Needs the extra `ui`.

May import: errors, store, retries, views.
"""
