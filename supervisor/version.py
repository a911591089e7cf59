"""The program's version; the build reads it from here."""

from typing import Final

VERSION: Final = "0.2.0"
