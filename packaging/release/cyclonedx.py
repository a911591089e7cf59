"""A bill of materials in CycloneDX 1.5: the program, and what it needs of one packaging system."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import NamedTuple


class Component(NamedTuple):
    """A package; ``purl`` is its package URL."""

    name: str
    version: str
    purl: str


def bill_of_materials(version: str, components: Iterable[Component], commit: str = "") -> str:
    """Return the document as text, with the program's version; the same for the same arguments."""
    program, needed = f"pkg:github/openperouter/openperouter@{version}", sorted(components)
    references = [one.purl for one in needed]
    application = {
        "type": "application",
        "bom-ref": program,
        "name": "openperouter",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join([program, commit, *references]))}",
        "version": 1,
        "metadata": {"component": application},
        "components": [{"type": "library", "bom-ref": one.purl, **one._asdict()} for one in needed],
        "dependencies": [{"ref": program, "dependsOn": references}],
    }
    return json.dumps(bill, indent=1) + "\n"
