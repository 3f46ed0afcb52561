"""Which rows can be left out, and how many draws their likelihood is worth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.analyses._draw_blocks import log_density_of
from bayesmesh.analyses._likelihood import MIN_DRAWS, check_rows, relative_efficiency
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.families.base import family_of
from bayesmesh.models.options import FAMILIES


@pytest.mark.parametrize(
    ("model", "spec", "said"),
    [
        ({"takes_all_rows": True}, {}, "takes all rows as one"),
        ({"local_latents": {"users": 0}}, {}, r"has latents for each row \(users\)"),
        ({}, {"roles": {"weights": "n"}}, r"rows have weights \('n'\)"),
        ({"has_predictions": False}, {}, "does not have exactly one outcome"),
        ({"row_problem": "rows are masked"}, {}, "rows are masked"),
    ],
)
def test_rows_that_cannot_be_left_out_are_refused(model: dict[str, Any], spec: dict[str, Any], said: str) -> None:
    plain = {"takes_all_rows": False, "local_latents": {}, "has_predictions": True, "row_problem": ""}
    data = {"entry_counts": (), "roles": {}}
    check_rows("loo", SimpleNamespace(**plain), SimpleNamespace(**data))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"key 'loo'.*{said}"):
        check_rows("loo", SimpleNamespace(**plain | model), SimpleNamespace(**data | spec))  # type: ignore[arg-type]


def test_latents_of_groups_may_follow_their_rows() -> None:
    model = SimpleNamespace(takes_all_rows=False, local_latents={"effects": 0}, has_predictions=True, row_problem="")
    check_rows("loo", model, SimpleNamespace(entry_counts=(3, 4), roles={}))  # type: ignore[arg-type]


def test_repeated_draws_are_worth_less_than_independent_ones() -> None:
    values = np.random.default_rng(0).normal(size=(1, 4, 200))
    slow = np.repeat(values[:, :, :40], 5, axis=2)
    independent, repeated = relative_efficiency(values)[0], relative_efficiency(slow)[0]
    assert independent == pytest.approx(1.0, abs=0.25)
    assert repeated == pytest.approx(0.2, abs=0.08)
    # Likelihoods that are infinite ratios apart have no overflow, and few draws no estimate.
    assert np.isfinite(relative_efficiency(values + 2000)).all()
    assert relative_efficiency(values[..., : MIN_DRAWS - 1]) == 1.0


@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_family_of_glm_has_the_density_that_its_likelihood_says(name: str, dtype: str) -> None:
    """In a process that computes in float64, as analyses do, also for an experiment in float32."""
    family = family_of(name)
    with jax.enable_x64(True):
        latents = {
            "sigma": 1.2,
            "nu": 4.0,
            "shape": 3.0,
            "phi": 5.0,
            "zi": 0.2,
            "hu": 0.3,
            "quantile": 0.6,
            "cut_zero": -1.0,
            "gap": 2.0,
        }
        latents |= {"baseline": [0.2, 0.3, 0.5]}
        draw = {key: jnp.asarray(value, dtype) for key, value in latents.items()}
        eta = jnp.full((2, 2) if name == "categorical" else 2, 0.3, dtype)
        y = 0.4 if name in ("beta", "ordered_beta") else 1
        outcome = jnp.asarray([y, y], jnp.int32 if family.is_discrete else dtype)
        trials = jnp.asarray([2, 3], jnp.int32)
        found = log_density_of(family.predict(eta, {"trials": trials}, draw), outcome)
        expected = family.log_density(eta, {"outcome": outcome, "trials": trials}, draw)
        constant = family.constant(np.ones(2), np.array([2.0, 3.0]))
        expected = expected if constant is None else expected + constant
        np.testing.assert_allclose(found, expected, rtol=1e-5)
