"""Moments of blocks of rows are those of the whole."""

from __future__ import annotations

import numpy as np

from bayesmesh.models.glm.moments import moments_of


def test_moments_of_blocks_are_those_of_the_whole() -> None:
    values = np.random.default_rng(1).normal(1e6, [1.0, 3.0], (1000, 2))
    found = moments_of(np.split(values, [1, 1, 200, 999]))
    assert found.num_rows == 1000
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-14)
    np.testing.assert_allclose(found.sd, values.std(0), rtol=1e-9)
