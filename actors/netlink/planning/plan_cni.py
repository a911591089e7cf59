"""Planning of the interfaces that CNI plugins make in the router (reference 4.4, KRN-U-5). Pure.

Each has a record from before its plugins are first called until they have removed it, so every step follows from the
records and the kernel: a record without result, or whose interface is gone or refused by CHECK, is removed and made
again; so is one whose configuration changed. Plugins of which nothing can be learned (missing, hanging) change nothing:
"unknown" is not "gone".
"""

from __future__ import annotations

from collections.abc import Iterator

from config.desired import CniAttachment, DesiredState, ResourceFailure
from config.problems import Reason

from .observed import NIC_GROUP, Link, Namespace, Observed
from .steps import AttachCni, ChangeLink, DetachCni, Step
from .wanted import KernelModel


def made_links(desired: DesiredState, observed: Observed) -> tuple[Link, ...]:
    """Return the wanted interfaces that plugins have made."""
    attachments = () if desired.underlay is None else desired.underlay.attachments
    links = observed.router.links
    return tuple(links[one.name] for one in attachments if one.name in links and one.name in observed.cni)


def stale_reason(wanted: CniAttachment, observed: Observed) -> str:
    """Return why a recorded interface has to be made again, or nothing."""
    record = observed.cni[wanted.name]
    if record.attachment != wanted:
        return "its configuration changed"
    if not record.result:
        return "it was not finished"
    if wanted.name not in observed.router.links:
        return "it is gone"
    return observed.cni_drift.get(wanted.name, "")


def detaching(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield the removal of interfaces that are not wanted, or not as they are.

    While a wanted NIC is nowhere, no unwanted one goes: a misspelt name does not cost the node its fabric.
    """
    wanted = {attachment.name: attachment for attachment in model.attachments}
    absent = any(nic not in observed.router.links and nic not in observed.host.links for nic in model.nics)
    for name in sorted(observed.cni):
        if name in wanted:
            reason = stale_reason(wanted[name], observed)
            if reason:
                yield _detach(name, model, reason)
        elif not absent:
            yield _detach(name, model)


def _detach(name: str, model: KernelModel, reason: str = "") -> DetachCni:
    return DetachCni(name, reason, resource=model.underlay, unit=f"cni {name}", vital=False)


def attaching(model: KernelModel, observed: Observed) -> tuple[list[Step], list[ResourceFailure]]:
    """Return the steps that make what is missing, and why an interface cannot be made or not be checked."""
    steps: list[Step] = []
    failures: list[ResourceFailure] = []
    if model.underlay is None:
        return steps, failures
    for wanted in model.attachments:
        name, link = wanted.name, observed.router.links.get(wanted.name)
        if name in observed.cni_unchecked:
            message = f"interface {name} cannot be checked and is left as it is: {observed.cni_unchecked[name]}"
            failures.append(model.failure(model.underlay, Reason.UNDERLAY_FAILED, message))
        if name not in observed.cni or stale_reason(wanted, observed):
            if link is None or name in observed.cni:
                steps.append(AttachCni(wanted, resource=model.underlay, unit=f"cni {name}", vital=False))
            elif link.group != NIC_GROUP and name not in observed.journal:
                message = (
                    f"interface {name} is in the router and was not made by its CNI plugins: "
                    "rename or delete it, or choose another interfaceName"
                )
                failures.append(model.failure(model.underlay, Reason.UNDERLAY_FAILED, message))
        elif link is not None and not link.up:
            steps.append(ChangeLink(Namespace.ROUTER, name, up=True, resource=model.underlay, unit=f"cni {name}"))
    return steps, failures
