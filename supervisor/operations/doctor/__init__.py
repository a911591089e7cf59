"""What ``openperouter doctor`` finds: probes collect facts, pure checks judge them, each complaint carries its cure.

Looking changes nothing: no lock is taken, no module loaded, no file written.
"""

from .checks import examine
from .findings import Finding, Level
from .probing import probe

__all__ = ["Finding", "Level", "examine", "probe"]
