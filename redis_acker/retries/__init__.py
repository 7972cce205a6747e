"""What happens to a message after it failed: the policy, the retry book, dead letters, and replays that others ask for.
Also withdrawals, which take failures out of the store for a replay by hand.

May import: errors, server, store, components.
"""
