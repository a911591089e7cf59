"""``openperouter doctor``: reads the machine, judges what it read, and names the fix of each complaint.

One module per area (machine, files, network managers, FRR, credentials, router), each with what it reads and the pure
checks on that; :mod:`.examine` puts them together.
"""

from .examine import HostState, examine, judge, read_machine
from .findings import Finding, Level, as_document, as_json, as_lines

__all__ = ["Finding", "HostState", "Level", "as_document", "as_json", "as_lines", "examine", "judge", "read_machine"]
