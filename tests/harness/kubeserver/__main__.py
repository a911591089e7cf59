"""The package's command line, for make: ``python3 -m kubeserver packages|build``.

``packages`` prints what this machine lacks of Debian packages, one a line; ``build`` builds what is missing and prints
where it is. Exit code 3: this machine has no Go that will do, and the reason is on standard error.
"""

from __future__ import annotations

import argparse
import sys

from . import clients, etcd, golang
from .build import PROGRAMS, ensure
from .errors import ClusterError, NoGoError

_NO_GO = 3
#: Certificates; the parent-death signal.
_PACKAGES = ("openssl", "util-linux")


def main() -> int:
    """Do one of the verbs; return the exit code."""
    parser = argparse.ArgumentParser(prog="kubeserver", description=__doc__)
    parser.add_argument("verb", choices=["packages", "build"])
    verb = parser.parse_args().verb
    try:
        if verb == "packages":
            print("\n".join([*_PACKAGES, *golang.packages()]))
        else:
            print("\n".join(map(str, [*ensure([*PROGRAMS, *clients.CLIENTS]), etcd.ensure()])))
    except ClusterError as error:
        print(f"kubeserver: {error}", file=sys.stderr)
        return _NO_GO if isinstance(error, NoGoError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
