"""The fake kernel fulfils the contract that tests/kernel checks on a real one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.netlink.kernel import Kernel
from actors.netlink.planning.observed import Link, Namespace
from tests.fakes.kernel import FakeKernel
from tests.fakes.kernel_contract import CONTRACT, NIC


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_the_fake_kernel_keeps_the_contract(clause: Callable[[Kernel], None]) -> None:
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(0, NIC, up=True))
    clause(kernel)
