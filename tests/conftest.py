"""What all tests share.

Property tests look for new counterexamples on every run at a developer's desk. Where a change is judged (``CI`` is
set), the examples are the same each time, so that a run says something about the change and can be repeated.
"""

from __future__ import annotations

import os

import hypothesis

hypothesis.settings.register_profile("judging", derandomize=True, database=None, deadline=None, print_blob=True)
hypothesis.settings.register_profile("looking", deadline=None, print_blob=True)
hypothesis.settings.load_profile("judging" if os.environ.get("CI") else "looking")
