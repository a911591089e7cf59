"""The package's command line, for make: ``python3 -m guestvm packages|tree|image|kernel``.

``packages`` prints what the host needs, one a line; ``tree``, ``image`` and ``kernel`` (User-Mode Linux) make what is
missing and print where it is.
"""

from __future__ import annotations

import argparse
import sys

from .errors import GuestError
from .hosttools import host_packages
from .image import ensure_image
from .kernel import ensure_kernel
from .tree import ensure_tree


def main() -> int:
    """Do one of the verbs; return the exit code."""
    parser = argparse.ArgumentParser(prog="guestvm", description=__doc__)
    parser.add_argument("verb", choices=["packages", "tree", "image", "kernel"])
    verb = parser.parse_args().verb
    try:
        if verb == "packages":
            print("\n".join(host_packages()))
        elif verb == "tree":
            print(ensure_tree())
        elif verb == "kernel":
            print(ensure_kernel().program)
        else:
            print(ensure_image().disk)
    except GuestError as error:
        print(f"guestvm: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
