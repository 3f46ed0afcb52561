"""Tables in files, read by the source `table` and sampled with default settings, against references made without the package.

`make test` samples one of them, `make nightly` all.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from posteriors.judging import assess
from tabular.runs import Numbers, compare, reference, sample_table
from tabular.simulated import TABLES

ALWAYS = ("weighted",)
NAMES = list(TABLES) if "BAYESMESH_NIGHTLY" in os.environ else ALWAYS


@pytest.mark.parametrize("name", NAMES)
def test_means_and_deviations_are_those_of_the_reference(name: str) -> None:
    draws, run = sample_table(name)
    verdict, missed, _ = assess(run)
    assert verdict in ("pass", "warn"), missed
    known = reference()[name]
    found = compare(draws, known)
    assert found.is_right, found
    quantity, (mean, sd, *errors) = max(known.items(), key=lambda item: item[1][1])
    # What is asked of draws can fail: a quarter of a standard deviation, or a fifth of it, is seen.
    assert not compare(draws, {quantity: Numbers(mean + 0.25 * sd, sd, *errors)}).is_right
    assert not compare(draws, {quantity: Numbers(mean, 1.2 * sd, *errors)}).is_right
    assert all(np.isfinite(draws[each]).all() for each in known)


def test_every_table_has_a_reference() -> None:
    assert len(TABLES) >= 20
    assert all(len(reference()[name]) >= 3 for name in TABLES)
