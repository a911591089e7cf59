"""One archive for a bug report: everything that helps to understand a node, and nothing that is secret.

Each piece is collected by itself, with a deadline; one that is unavailable leaves its error in the archive. Every text
passes through :class:`Redactor` before it is written anywhere.
"""

from .archive import BundleError, collect, write_bundle
from .known_secrets import known_secrets
from .redactor import Redactor

__all__ = ["BundleError", "Redactor", "collect", "known_secrets", "write_bundle"]
