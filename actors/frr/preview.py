"""What a person may see of FRR: what it runs, and what applying would change. Never writes, never shows a secret."""

from __future__ import annotations

import socket

from actors.lib.frr.vtysh import Vtysh
from config.desired import DesiredState
from config.settings import Settings
from config.syntax.frr_secrets import redact

from .diff.difference import difference, intended, parse
from .render.render import render


async def preview(desired: DesiredState, settings: Settings) -> str:
    """Return what FRR would gain (``+``) and lose (``-``), a line each; empty when it runs the desired state.

    Raises ``DependencyFault`` when FRR does not answer.
    """
    rendered = render(desired, hostname=socket.gethostname(), listen_limit=settings.bgp_listen_limit)
    return str(difference(intended(rendered), parse(await _running(settings))))


def rendered_redacted(desired: DesiredState, settings: Settings) -> str:
    """Return the configuration that a desired state means, without secrets."""
    return render(desired, hostname=socket.gethostname(), listen_limit=settings.bgp_listen_limit).redacted


async def running_redacted(settings: Settings) -> str:
    """Return FRR's running configuration without secrets; raises ``DependencyFault`` when FRR does not answer."""
    return redact(await _running(settings))


async def _running(settings: Settings) -> str:
    vtysh = Vtysh.of(settings)
    return await vtysh.text("show running-config")
