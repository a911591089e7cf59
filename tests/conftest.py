"""What all tests share.

Property tests take the same examples on every run and on every machine, also in the containers and guests in which
parts of the suite run, so that a red run says something about the change and can be repeated.
``OPENPEROUTER_EXPLORE=1`` looks for new counterexamples instead.

What exists once all tests are collected (modules, items) stays to the end: the garbage collector
need not traverse it again and again.
"""

from __future__ import annotations

import gc
import os

import hypothesis
from hypothesis import strategies

hypothesis.settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("explore" if os.environ.get("OPENPEROUTER_EXPLORE") else "repeatable")


@hypothesis.settings(max_examples=1)
@hypothesis.given(strategies.none())
def use_hypothesis(_: None) -> None:
    """Have Hypothesis register its random numbers: it asks the garbage collector who refers to them."""


def pytest_collection_finish() -> None:
    use_hypothesis()
    gc.collect()
    gc.freeze()
