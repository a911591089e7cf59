"""The demonstration: one node, one leaf switch and four hosts on one guest, and what should work between them.

The guest tests stand on the same topology (:mod:`demo.topology`), so what ``make demo`` shows is what they check.
"""

from __future__ import annotations
