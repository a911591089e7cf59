"""Faults decide exit codes and retries by their kind alone."""

from __future__ import annotations

import pytest

from supervisor.runtime.faults import (
    SUMMARY_LENGTH,
    AlreadyRunningFault,
    ConfigFault,
    DependencyFault,
    Fault,
    KernelFault,
    PermissionFault,
    exit_code_of,
    is_bug,
    summarize,
)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ConfigFault, 78), (DependencyFault, 69), (KernelFault, 71), (AlreadyRunningFault, 75), (PermissionFault, 77)],
)
def test_each_kind_has_its_exit_code(kind: type[Fault], code: int) -> None:
    assert exit_code_of(kind("x")) == code
    assert not is_bug(kind("x"))


def test_anything_else_is_a_bug() -> None:
    assert exit_code_of(ZeroDivisionError()) == 70
    assert is_bug(ZeroDivisionError())


def test_a_configuration_fault_deep_in_a_group_decides_the_exit_code() -> None:
    error = ExceptionGroup("a", [ValueError("x"), ExceptionGroup("b", [ConfigFault("y")])])
    assert exit_code_of(error) == 78


def test_a_bug_beside_a_fault_is_a_bug() -> None:
    error = ExceptionGroup("a", [KernelFault("x"), ValueError("y")])
    assert is_bug(error)
    assert exit_code_of(error) == 70


def test_a_group_of_faults_exits_as_its_first() -> None:
    assert exit_code_of(ExceptionGroup("a", [KernelFault("x"), DependencyFault("y")])) == 71


def test_a_summary_is_one_line_without_the_wrapping() -> None:
    error = ExceptionGroup("noise", [KernelFault("no\nsuch  device"), KeyError("k"), KernelFault("no such device")])
    assert summarize(error) == "no such device; KeyError: 'k'"


def test_a_summary_is_bounded_and_never_empty() -> None:
    assert len(summarize(KernelFault("x" * 10_000))) == SUMMARY_LENGTH
    assert summarize(DependencyFault()) == "DependencyFault"
