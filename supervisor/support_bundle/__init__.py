"""One archive for a bug report: everything that helps to understand a node, and nothing that is secret.

Each piece is collected by itself, with a deadline; one that cannot be had leaves its error in the archive. Every text
passes through :class:`Redactor` before it is written anywhere.
"""

from .archive import BundleError, write_bundle
from .collecting import collect
from .redacting import Redactor
from .secrets_known import known_secrets

__all__ = ["BundleError", "Redactor", "collect", "known_secrets", "write_bundle"]
