"""The router's part of the kernel: links, addresses, routes and sysctls as desired, and drift repaired.

Reading order: :mod:`.planning.observed` (what exists), :mod:`.planning.wanted` (what should exist),
:mod:`.planning.plan` (the difference, as :mod:`.planning.steps`), :mod:`.kernel` (how a step is carried out),
:mod:`.converge` (one pass), :mod:`.actor` (the loop).
"""
