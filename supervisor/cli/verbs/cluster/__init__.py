"""The verbs that are about the cluster, in the order in which the command line lists them."""

from __future__ import annotations

from . import controller, crds, hostbridge, join, manifests, metrics, webhook

VERBS = (join, crds, manifests, hostbridge, metrics, controller, webhook)
