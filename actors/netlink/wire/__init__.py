"""The kernel's interfaces: rtnetlink through pyroute2, and sysctls.

Requests are built from pyroute2's message classes, which mirror the kernel's and have been stable since 0.6, and not
through its keyword API, whose filters differ between versions. Works with 0.7.7 (Debian 13) and 0.8.1 (Debian 14).
"""
