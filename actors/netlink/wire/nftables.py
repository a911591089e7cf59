"""Our nftables table in the router's namespace, read and replaced through ``nft -j``, which Debian packages.

A namespace's thread starts the program, which so runs in that namespace.
"""

from __future__ import annotations

import errno
import json
import subprocess
from typing import Any, Final

from ..planning.packet_filter import TABLE, Objects, canonical
from .namespace import NamespaceHandle
from .socket import KernelRefusal

NFT: Final = "nft"
#: It takes a hundredth of that on a slow machine.
NFT_SECONDS: Final = 10.0
#: What nft says of a table that does not exist.
_ABSENT: Final = "No such file or directory"


class FilterUnavailableError(Exception):
    """The program is not installed or does not work, or this kernel cannot filter; the text says which."""


def read_table(handle: NamespaceHandle) -> tuple[str, ...]:
    """Return our table's objects as :func:`canonical` text, none without the table. Raises FilterUnavailableError."""
    result = _nft(handle, "list", "table", TABLE["family"], TABLE["name"])
    if result.returncode == 0:
        try:
            objects: Objects = json.loads(result.stdout)["nftables"]
            return canonical(objects)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise FilterUnavailableError("nft: its answer is not JSON as documented") from None
    if _ABSENT in result.stderr:
        # A kernel without tables of this family says the same as one that lacks only ours: have it check one.
        result = _nft(handle, "--check", "-f", "-", text=json.dumps({"nftables": [{"add": {"table": TABLE}}]}))
        if result.returncode == 0:
            return ()
    raise FilterUnavailableError(_reason(result))


def replace_table(handle: NamespaceHandle, objects: Objects) -> None:
    """Replace our table by these objects, or remove it, in one transaction. KernelRefusal when that is refused."""
    # Adding it first makes deleting it harmless when it does not exist.
    commands: list[dict[str, Any]] = [{"add": {"table": TABLE}}, {"delete": {"table": TABLE}}]
    commands += [{"add": one} for one in objects]
    try:
        result = _nft(handle, "-f", "-", text=json.dumps({"nftables": commands}))
    except FilterUnavailableError as problem:
        raise KernelRefusal(errno.EOPNOTSUPP, str(problem)) from problem
    if result.returncode != 0:
        raise KernelRefusal(errno.EIO, _reason(result))


def _nft(handle: NamespaceHandle, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    def run() -> subprocess.CompletedProcess[str]:
        command = [NFT, "-j", *arguments]
        return subprocess.run(
            command, check=False, capture_output=True, encoding="utf-8", errors="replace", input=text,
            timeout=NFT_SECONDS,
        )  # fmt: skip

    try:
        return handle.call(lambda _: run())
    except FileNotFoundError:
        raise FilterUnavailableError("nft is not installed (apt-get install nftables)") from None
    except OSError as error:
        raise FilterUnavailableError(f"nft does not start: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise FilterUnavailableError(f"nft gave no answer within {NFT_SECONDS:.0f} s") from None


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    return f"nft: {' '.join(result.stderr.split())[:300] or f'exit status {result.returncode}'}"
