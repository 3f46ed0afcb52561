"""The choice of a metric."""

from __future__ import annotations

import pytest

from bayesmesh.kernels.hamiltonian.metrics.auto import choose_metric

SIZES = {
    (1, 0): "dense",
    (300, 0): "dense",
    (301, 0): "low_rank",
    (3, 90): "low_rank",
    (20_000, 0): "low_rank",
    (10_000, 10_001): "diagonal",
}


@pytest.mark.parametrize(("sizes", "expected"), SIZES.items())
def test_size_decides_unless_the_curvature_is_known(sizes: tuple[int, int], expected: str) -> None:
    name, reason = choose_metric(*sizes, is_at_mode=False)
    assert name == expected
    assert f"{sizes[0]:,} shared and {sizes[1]:,} local" in reason
    assert choose_metric(*sizes, is_at_mode=True)[0] == "curvature"
    # Nothing is left to learn but variances.
    standardised = choose_metric(*sizes, is_at_mode=False, has_unit_scale=True)[0]
    assert standardised == ("dense" if expected == "dense" else "diagonal")
