"""The command line: one verb per file, heavy imports inside the functions that need them.

``openperouter status`` must answer quickly on a slow and busy node, where importing the daemon's libraries takes longer
than everything else.
"""

import os

# For pydantic, before anything imports it: it need not check the schemas that it has made itself, which newer versions
# do not do either, and what happens to be installed on the machine is no plugin of a daemon that runs as root.
os.environ.setdefault("PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS", "1")
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from supervisor.process import bytecode_cache

with bytecode_cache.used():
    from .program import main

__all__ = ["main"]
