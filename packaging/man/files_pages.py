"""openperouter.yaml(5) and openperouter-files(5), from the models that read these files."""

from __future__ import annotations

from collections.abc import Iterator

from configuration_reference import SECTIONS, constraints, default_text, nested, type_text
from pydantic import BaseModel
from roff import bold, example, header, heading, italic, item, paragraphs, prose, see_also, subheading

from config.node import NodeConfig
from config.settings import Settings

MANUAL = "File formats"

RULES = """\
All files are YAML in UTF-8. Unknown and duplicate keys are errors, and every message names file, line, column and
field. `openperouter validate` checks everything without touching anything and exits with 78 when there is an error.
"""

SETTINGS_TEXT = """\
`openperouter.yaml` has the daemon's own settings: paths, limits and intervals. The files in `conf.d` beside it, in
lexical order, are read after it; the last value of a key counts. A key that is nowhere has its default; no file at
all is fine. Settings are read when the daemon starts: after a change, `systemctl restart openperouter`, which does
not touch forwarding.
"""

ROUTER_TEXT = """\
`node-config.yaml` says which node this is; the files `openpe_*.yaml`, read in lexical order, say what its router
should be. They are read at start, when they change, and on `systemctl reload openperouter`. Each may have the
top-level keys `underlays`, `l3vnis`, `l2vnis` and `rawfrrconfigs` (lists) and `bgppassthrough` (one object), all
optional. Entries of `l3vnis` and `l2vnis` may carry a `name` beside the fields below; other entries refer to them by
it.

A file that cannot be read or parsed keeps its last good content in force. An entry that breaks a rule is left out,
together with what depends on it; everything else is applied. While no underlay is usable nothing changes at all.

Files with passwords should be readable by root only.
"""

EXAMPLE = """\
underlays:
  - asn: 64514
    interfaces:
      - type: NetworkDevice
        networkDevice:
          interfaceName: toswitch1
    neighbors:
      - asn: 64512
        address: 192.168.11.2
    tunnelEndpoint:
      cidrs:
        - 100.65.0.0/24
"""


def settings_page(version: str) -> str:
    """Return openperouter.yaml(5)."""
    lines = [
        header("OPENPEROUTER.YAML", 5, version, MANUAL),
        heading("name"),
        "openperouter.yaml \\- settings of the openperouter daemon",
        heading("synopsis"),
        italic("/etc/openperouter/openperouter.yaml"),
        ".br",
        italic("/etc/openperouter/conf.d/*.yaml"),
        heading("description"),
        *paragraphs(SETTINGS_TEXT),
        *paragraphs(RULES),
        heading("keys"),
        *fields(Settings, ""),
        heading("example"),
        *example(["logLevel: debug", "auditIntervalSeconds: 30"]),
        *see_also(("openperouter", 8), ("openperouter-files", 5), ("openperouter.service", 8)),
    ]
    return "\n".join(lines) + "\n"


def files_page(version: str) -> str:
    """Return openperouter-files(5)."""
    lines = [
        header("OPENPEROUTER-FILES", 5, version, MANUAL),
        heading("name"),
        "openperouter-files \\- what the router on this node should be",
        heading("synopsis"),
        italic("/etc/openperouter/node-config.yaml"),
        ".br",
        italic("/etc/openperouter/configs/openpe_*.yaml"),
        heading("description"),
        *paragraphs(ROUTER_TEXT),
        *paragraphs(RULES),
        heading("node-config.yaml"),
        *fields(NodeConfig, ""),
        heading("openpe_*.yaml"),
        *router_sections(),
        heading("example"),
        *example(EXAMPLE.splitlines()),
        *see_also(("openperouter", 8), ("openperouter.yaml", 5), ("openperouter.service", 8)),
    ]
    return "\n".join(lines) + "\n"


def router_sections() -> Iterator[str]:
    """Yield a subsection for each top-level key of a router file."""
    for title, model in SECTIONS:
        if not issubclass(model, Settings | NodeConfig):
            yield subheading(title.replace("`", ""))
            yield from paragraphs((model.__doc__ or "").split("\n\n")[0])
            yield from fields(model, "")


def fields(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield an item for each field, then those of the models inside it."""
    for name, info in model.model_fields.items():
        inner, repeated = nested(info.annotation)
        path = f"{prefix}{info.alias or name}{'[]' if repeated else ''}"
        default = default_text(info).replace("**", "")
        traits = [type_text(info), f"default {default}" if default.startswith("`") else default, constraints(info)]
        yield from item(bold(path), info.description or "")
        yield from (".br", prose(f"({', '.join(trait for trait in traits if trait)})"))
        if inner is not None:
            yield from fields(inner, f"{path}.")
