"""Which classes are taken for which, and the cases that are least certain, against counts by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.analyses.averaging.scores import Entropies, entropy, write_cases
from bayesmesh.analyses.averaging.section import read_mistakes, wilson
from bayesmesh.store.arrays import open_group

PROBABILITIES = np.array([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.0, 1.0, 0.0], [0.3, 0.4, 0.3]])
LABELS = np.array([0, 0, 1, 1])


def test_counts_shares_and_cases(tmp_path: Path) -> None:
    total = entropy(PROBABILITIES)
    rows = {"features": np.arange(16, dtype=np.uint8).reshape(4, 4)}
    write_cases(open_group(tmp_path, "w"), Entropies(total, 0.75 * total), rows, (2, 2), ("ash", "elm", "oak"))
    found = read_mistakes(tmp_path, PROBABILITIES, LABELS)
    assert found is not None
    assert [row.counts for row in found.rows] == [(1, 1, 0), (0, 2, 0), (0, 0, 0)]
    assert [row.right for row in found.rows[:2]] == [0.5, 1.0]
    assert math.isnan(found.rows[2].right), "no row is of this class"
    assert (found.names, found.largest) == (["ash", "elm", "oak"], 1)
    first = found.cases[0]
    assert (first.row, first.label, first.first, first.p_first) == (3, "elm", "elm", 0.4)
    assert first.entropy == pytest.approx(total[3])
    assert first.share == pytest.approx(0.25)
    assert first.image.startswith("data:image/png;base64,")
    assert [case.row for case in found.cases] == [3, 1, 0, 2]
    assert found.cases[-1].share == 0, "nothing is uncertain"


def test_wilson_s_interval_is_that_of_scipy() -> None:
    from scipy.stats import binomtest

    for right, count in ((0, 7), (3, 10), (19, 20), (20, 20)):
        expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
        low, high = wilson(np.asarray(right / count), np.asarray(count))
        assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), abs=1e-4)
