"""``openperouter webhook``: the admission webhook, in a pod."""

from __future__ import annotations

import argparse
from typing import Any

from supervisor.operations.paths import conf_d, require_readable_settings

from ...options import add_verb


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "webhook",
        run,
        summary="in a pod: refuse objects that no node could use",
        description="Run in a pod of a Deployment (packaging/kubernetes/webhook): answer the API server's admission "
        "reviews by the rules that nodes apply. An object that no node could use is denied; one that only "
        "some nodes refuse is admitted with a warning. It issues and renews its own certificates. Of the nodes' "
        "settings it needs those about namespaces. Runs until SIGTERM.",
    )
    parser.add_argument("--port", type=int, default=9443, metavar="PORT", help="the port to serve (default: 9443)")
    parser.add_argument(
        "--service",
        default="openperouter-webhook",
        metavar="NAME",
        help="the Service, and the Secret for the certificates (default: openperouter-webhook)",
    )
    parser.add_argument(
        "--configuration",
        default="openperouter",
        metavar="NAME",
        help="the ValidatingWebhookConfiguration that names the Service (default: openperouter)",
    )
    parser.add_argument(
        "--namespace", metavar="NAMESPACE", help="openperouter's namespace (default: that of the settings)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    require_readable_settings(arguments.settings)
    from actors.webhook.rotation import Storage
    from config.problems import errors
    from config.resolve.grants import Grants
    from config.settings import load_settings
    from supervisor.logs.logger import configure
    from supervisor.operations.cluster.webhook import Options, run_webhook
    from supervisor.operations.exit_codes import CONFIG, CommandError

    settings, problems = load_settings(arguments.settings, conf_d(arguments.settings))
    if errors(problems):
        raise CommandError(str(errors(problems)[0]), CONFIG)
    configure(settings.log_level)
    if arguments.namespace:
        settings = settings.model_copy(update={"namespace": arguments.namespace})
    grants = Grants.of(settings)
    host = f"{arguments.service}.{grants.namespace}.svc"
    storage = Storage(grants.namespace, arguments.service, arguments.configuration, (host, f"{host}.cluster.local"))
    return run_webhook(Options(arguments.port, storage, grants))
