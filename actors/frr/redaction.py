"""FRR text without its secrets. What a secret looks like is data that others need too, hence ``config``."""

from config.syntax.frr_secrets import HIDDEN, redact

__all__ = ["HIDDEN", "redact"]
