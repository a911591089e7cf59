"""What a review of the admission webhook costs, in a cluster of 1 000 objects and 100 nodes, as CPU time.

    python -m tests.bench.admission

Two clusters: one underlay for all nodes, and a mirror of each node's own. Reviewed are edits of what is there, copies
that clash, and new networks, of all kinds in turn. Exits with 1 if the slowest in a hundred is above the limit.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from config.admission.objects import Objects, entry_of
from config.admission.review import ReviewRequest, review
from config.api import ApiObject
from config.problems import Kind
from tests.config.admission.examples import GRANTS, OWN, all_of, l2vni, l3vni, mirror, node, on, session, underlay

OBJECTS: Final = 1000
NODES: Final = 100
REVIEWS: Final = 600
#: Milliseconds of CPU, for 99 of 100 reviews.
LIMIT: Final = 50.0


def cluster(*, mirrored: bool) -> list[ApiObject]:
    """Return a third L3VNIs with sessions, two segments in each, some of them for a part of the nodes."""
    first = [mirror(underlay("u", asn=64512 + number % 5), f"node-{number}") for number in range(NODES)]
    found = first if mirrored else [underlay()]
    for number in range(OBJECTS - len(found)):
        domain = number - number % 3
        place, third = f"tenant-{domain % 50}", f"{number // 250}.{number % 250}"
        if number == domain:
            found.append(l3vni(f"v{number}", number + 1, place, hostSession=session(f"10.{third}.0/24")))
            continue
        some = {"nodeSelector": on(rack=str(number % 5))} if number % 7 == 0 else {}
        gateway = [f"172.{16 + number // 250}.{number % 250}.1/24"]
        found.append(l2vni(f"s{number}", number + 1, f"v{domain}", place, gatewayIPs=gateway, **some))
    return found


def requests(objects: list[ApiObject]) -> Iterator[ReviewRequest]:
    """Yield what is reviewed, the same each time."""
    chance = random.Random(1)  # noqa: S311 - not a secret
    for number in range(REVIEWS):
        one = chance.choice(objects)
        if number % 3 == 0:
            changed = {"asn": 65000} if one.kind is Kind.UNDERLAY else {"vxlanPort": 4790}
            yield ReviewRequest(replace(one, spec={**one.spec, **changed}), one)
        elif number % 3 == 1:
            yield ReviewRequest(replace(one, name="copy"))
        else:
            yield ReviewRequest(l3vni("fresh", 5000 + number, "fresh"))


def main() -> int:
    """Print the figures; return the exit code."""
    worst = 0.0
    nodes = all_of(node(f"node-{number}", number, rack=str(number % 5)) for number in range(NODES))
    for mirrored in (False, True):
        objects = cluster(mirrored=mirrored)
        index, spent = Objects(entry_of(one, OWN) for one in objects), []
        for request in requests(objects):
            began = time.process_time()
            review(index, nodes, request, GRANTS)
            spent.append(1000 * (time.process_time() - began))
        spent.sort()
        half, most = spent[len(spent) // 2], spent[len(spent) * 99 // 100]
        worst = max(worst, most)
        what = "each node's own underlay" if mirrored else "one underlay"
        print(
            f"{what}: half within {half:.1f} ms, 99 of 100 within {most:.1f} ms, the slowest {spent[-1]:.1f} ms of CPU"
        )
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
