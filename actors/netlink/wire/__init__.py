"""The kernel's interfaces: rtnetlink, and sysctls.

Messages are encoded and decoded here (:mod:`.message`), not by a library: what is used is a small and stable part of
rtnetlink, and a pass over hundreds of networks encodes and decodes thousands of messages.
"""
