"""The setting ``metrics``: where the daemon serves its metrics, if at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from config.models.base import camel

_FORMS: Final = "unix:/PATH, http://ADDRESS:PORT or https://ADDRESS:PORT"
_URL: Final = re.compile(r"(?P<scheme>https?)://(?P<host>\[[^]]+\]|[^:/\[\]]+):(?P<port>[0-9]{1,5})/?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A place to listen: a ``path`` for a unix socket, otherwise an address and a port."""

    scheme: Literal["unix", "http", "https"]
    path: Path = Path("/")
    host: str = ""
    port: int = 0


def endpoint_of(listen: str) -> Endpoint:
    """Parse the setting. Raises ``ValueError`` that says what was expected."""
    if listen.startswith("unix:"):
        path = Path(listen.removeprefix("unix:"))
        if not path.is_absolute() or ".." in path.parts or not listen.isprintable():
            raise ValueError("the path after 'unix:' must be absolute, without '..' and control characters")
        return Endpoint("unix", path)
    match = _URL.fullmatch(listen)
    if match is None:
        raise ValueError(f"must be {_FORMS}")
    try:
        address = ip_address(match["host"].strip("[]"))
    except ValueError:
        raise ValueError(f"must be {_FORMS}, with an IP address ([::] and 0.0.0.0: all)") from None
    port = int(match["port"])
    if not 0 < port < 65536:
        raise ValueError("the port must be between 1 and 65535")
    if match["scheme"] == "https":
        return Endpoint("https", host=str(address), port=port)
    if not address.is_loopback:
        raise ValueError("http is for loopback addresses (127.0.0.1, [::1]) only; use https")
    return Endpoint("http", host=str(address), port=port)


class MetricsSettings(BaseModel):
    """Where the metrics can be scraped, besides their file."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    listen: str | None = Field(
        default=None,
        max_length=200,
        description="unix:/PATH (for root and its group), http://ADDRESS:PORT (loopback only) or https://ADDRESS:PORT; "
        "absent: nothing is served.",
    )
    certificate: Path | None = Field(
        default=None, description="The server's certificate and those between it and its authority (PEM), for https."
    )
    key: Path | None = Field(default=None, description="The certificate's private key (PEM).")
    client_authority: Path | None = Field(
        default=None,
        description="Authority (PEM) of clients' certificates, for https; absent: anyone who can connect may read.",
    )

    @field_validator("listen")
    @classmethod
    def _listen_is_known(cls, listen: str | None) -> str | None:
        if listen is not None:
            endpoint_of(listen)
        return listen

    @field_validator("certificate", "key", "client_authority")
    @classmethod
    def _paths_are_absolute(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError("must be an absolute path")
        return path

    @model_validator(mode="after")
    def _https_has_a_certificate(self) -> MetricsSettings:
        secure = (self.listen or "").startswith("https:")
        if secure and not (self.certificate and self.key):
            raise ValueError("https needs certificate and key")
        if not secure and (self.certificate or self.key or self.client_authority):
            raise ValueError("certificate, key and clientAuthority are for listen: https://... only")
        return self
