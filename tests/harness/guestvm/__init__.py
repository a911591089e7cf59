"""A Debian 13 node to test on: built, cached, booted and thrown away again.

    tree    a directory with an installed Debian 13 (also what User-Mode Linux boots)
    image   the same as a disk, with its kernel
    machine that disk booted by QEMU behind an ssh port on the loopback, never written to: each boot has its own overlay

Only the standard library is used, because this runs first on a machine that has nothing installed yet.
"""

from __future__ import annotations
