"""One package per actor: receive a value, call a pure function, send the result.

Actors never import one another; what two of them share is data, and data lives in ``config``.
"""
