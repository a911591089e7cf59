"""When periodic work wakes the process: all of it together, as far as it need not be exact.

A wakeup costs, whatever is done in it: caches are cold, and the event loop takes a turn (``docs/performance.md``).
"""

from __future__ import annotations

from typing import Final

import trio

#: Distance of the times at which periodic work is done, in seconds. trio's clock begins at another number in each
#: process, so nodes do not work in step.
GRID_SECONDS: Final = 5.0


def aligned(deadline: float) -> float:
    """Return the time for periodic work that is due at ``deadline``, both on trio's clock: half a step off at most.

    A deadline that is less than two steps away stays exact.
    """
    if deadline < trio.current_time() + 2 * GRID_SECONDS:
        return deadline
    return round(deadline / GRID_SECONDS) * GRID_SECONDS
