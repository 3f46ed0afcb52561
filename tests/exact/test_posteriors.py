"""Small public posteriors with default settings: no wrong one passes.

`make test` samples one of them, `make nightly` all with both kernels.
"""

from __future__ import annotations

import os

import pytest

from posteriors import POSTERIORS
from posteriors.judging import judge, reference, sample

IS_NIGHTLY = "BAYESMESH_NIGHTLY" in os.environ
KERNELS = {"nuts": 4, "chees": 32} if IS_NIGHTLY else {"chees": 32}
ALWAYS = "linear, unscaled"
NAMES = list(POSTERIORS) if IS_NIGHTLY else [ALWAYS]


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_wrong_posterior_passes(kernel: str) -> None:
    found = {name: judge(name, sample(name, kernel, KERNELS[kernel])) for name in NAMES}
    passed = {name: each for name, each in found.items() if each.verdict == "pass"}
    assert all(each.is_right for each in passed.values()), passed
    assert ALWAYS in passed, found[ALWAYS]


def test_every_posterior_has_a_reference() -> None:
    assert all(reference()[name] for name in POSTERIORS)
