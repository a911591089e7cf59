"""The real kernel fulfils the contract that plans rely on, as the unit tests' fake does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.netlink.kernel import Kernel
from tests.fakes.kernel_contract import CONTRACT
from tests.kernel.node import Node


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_the_kernel_keeps_the_contract(clause: Callable[[Kernel], None], node: Node) -> None:
    clause(node.kernel)
