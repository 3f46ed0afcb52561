"""P values of residuals in right regressions of few rows, whose posterior is known, are not smaller than their level."""

from __future__ import annotations

import numpy as np

from bayesmesh.analyses.predictive_checks.columns import bin_numbers
from bayesmesh.analyses.predictive_checks.quantities import p_value
from bayesmesh.analyses.predictive_checks.residuals import Residuals

NUM_DATA, NUM_ROWS, NUM_SETS, LEVEL = 300, 120, 500, 0.05


def test_right_regressions_are_not_refuted_by_residuals() -> None:
    generator = np.random.default_rng(47)
    below: dict[str, int] = {}
    for _ in range(NUM_DATA):
        # A skewed predictor leaves few rows with large predictions.
        design = np.column_stack([np.ones(NUM_ROWS), np.exp(generator.standard_normal((NUM_ROWS, 2)))])
        y = design @ [1.0, 0.5, -1.0] + generator.standard_normal(NUM_ROWS)
        covariance = np.linalg.inv(design.T @ design)
        centre = covariance @ design.T @ y
        scale = np.sqrt(np.square(y - design @ centre).sum() / generator.chisquare(NUM_ROWS - 3, (NUM_SETS, 1)))
        noise = generator.standard_normal((NUM_SETS, 3)) @ np.linalg.cholesky(covariance).T
        simulated = (centre + scale * noise) @ design.T + scale * generator.standard_normal((NUM_SETS, NUM_ROWS))
        columns = [bin_numbers(f"x{i}", design[:, i]) for i in (1, 2)]
        residuals = Residuals("real", [each for each in columns if each is not None], simulated)
        residuals.add(y, simulated, 0)
        for name, (observed, *others) in residuals.quantities()[0].items():
            below[name] = below.get(name, 0) + (p_value(np.array(others), observed, is_upper=True) <= LEVEL)
    # Four standard deviations of a binomial number above the expected one.
    most = LEVEL * NUM_DATA + 4 * np.sqrt(LEVEL * (1 - LEVEL) * NUM_DATA)
    assert len(below) == 4
    assert max(below.values()) <= most, below
    # Spreads use no fitted number of the same data twice, so that their p values are nearly uniform.
    assert min(below[f"spread of residuals by {by}"] for by in ("prediction", "column")) >= 4
