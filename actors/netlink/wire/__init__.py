"""The only place that knows pyroute2: typed values in, typed values out.

Requests are built from pyroute2's message classes and not from its keyword API, whose filters differ between versions:
the messages are the kernel's own and have been the same since 0.6. Works with 0.7.7 (Debian 13) and 0.8.1 (Debian 14).
"""
