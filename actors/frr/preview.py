"""What the command line shows of FRR: the running configuration, and what applying would change. Without secrets."""

from __future__ import annotations

import socket

from actors.lib.frr.vtysh import Vtysh
from config.desired import DesiredState
from config.settings import Settings
from config.syntax.frr_secrets import redact

from .diff.difference import difference, intended, parse
from .render.render import RenderedConfig, render


async def preview(desired: DesiredState, settings: Settings) -> str:
    """Return what FRR would gain (``+``) and lose (``-``), a line each; empty if it runs the desired state.

    Raises ``DependencyFault`` if FRR does not answer.
    """
    return str(difference(intended(_rendered(desired, settings)), parse(await _running(settings))))


def rendered_redacted(desired: DesiredState, settings: Settings) -> str:
    """Return the configuration for a desired state, without secrets."""
    return _rendered(desired, settings).redacted


async def running_redacted(settings: Settings) -> str:
    """Return FRR's running configuration without secrets; raise ``DependencyFault`` if FRR does not answer."""
    return redact(await _running(settings))


def _rendered(desired: DesiredState, settings: Settings) -> RenderedConfig:
    return render(desired, hostname=socket.gethostname(), listen_limit=settings.bgp_listen_limit)


async def _running(settings: Settings) -> str:
    return await Vtysh.of(settings).text("show running-config")
