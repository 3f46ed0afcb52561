"""Exact draws of effects of crossed groups leave the joint distribution of latents and outcomes as it is; see `joint`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.kernels import gibbs
from bayesmesh.models.glm import conditionals
from bayesmesh.models.glm.model import Glm
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows
from joint import Replicates

NUM, ALPHA, NUM_ROWS = 1_000, 1e-6, 24
FORMULA = "y ~ x + (1 + x || site) + (1 | year)"
PRIORS = {
    "intercept": "normal(1, 0.8)", "coefficients": "normal(0.2, 0.5)", "sigma": "exponential(1)", "sd": "half_normal(0.7)"
}  # fmt: skip


@functools.cache
def prepared() -> tuple[Any, DataSpec, dict[str, np.ndarray]]:
    random = np.random.default_rng(3)
    table = {
        "x": random.normal(size=NUM_ROWS), "y": random.normal(size=NUM_ROWS), "weights": random.integers(1, 3, NUM_ROWS),
        "site": (np.arange(NUM_ROWS) % 6).astype(np.int32), "year": random.integers(0, 4, NUM_ROWS).astype(np.int32),
    }  # fmt: skip
    fields = {k: FieldSpec((), v.dtype.name) for k, v in table.items()}
    categories = {"site": 6, "year": 4}
    variables = {
        k: Variable("category", levels=tuple(map(str, range(categories[k])))) if k in categories else Variable("number")
        for k in table
    }
    own = options_class("model", "glm")(
        formula=FORMULA, family="normal", priors=PRIORS, centred=True, local_group="site"
    )
    spec = DataSpec(NUM_ROWS, fields, {}, "float64", variables=variables)
    made, rows = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    return own, made, rows


def make_target() -> Target:
    own, spec, _ = prepared()
    # Two devices and small tiles: padding is part of what is tested.
    return Target(Glm(own, spec), spec, lay_out_rows(NUM_ROWS, 2, 8, spec.entry_counts))


def predictor(target: Target, latents: Any) -> jax.Array:
    _, spec, rows = prepared()
    aligned = {k: latents[k][spec.entries_of(np.arange(NUM_ROWS))] for k in target.model.local_latents}
    return target.model.linear_predictor({**latents, **aligned}, {k: jnp.asarray(v) for k, v in rows.items()})


def quantities(target: Target, z: dict[str, Any], outcomes: Any) -> list[np.ndarray]:
    """All latents, and what ties them to the outcomes and to each other, (replicate,) each."""
    expected = np.asarray(jax.jit(jax.vmap(functools.partial(predictor, target)))(z))
    residual = (np.asarray(outcomes) - expected) / np.asarray(z["sigma"])[:, None]
    found = [x for v in z.values() for x in np.asarray(v).reshape(NUM, -1).T]
    level = (
        np.asarray(z["intercept"])
        + np.asarray(z["effects_site"])[:, :, 0].mean(1)
        + np.asarray(z["effects_year"])[:, :, 0].mean(1)
    )
    ratios = [np.asarray(z[f"effects_{g}"])[:, :, 0].std(1) / np.asarray(z[f"sd_{g}"])[:, 0] for g in ("site", "year")]
    return [*found, *ratios, level, expected[:, 0], (residual**2).sum(1), (residual * expected).sum(1)]


def smallest_p(turns: int) -> float:
    target = make_target()
    fixed = {k: jnp.asarray(v) for k, v in target.lay_out(prepared()[2]).items()}

    def draw(key: jax.Array, latents: dict[str, jax.Array]) -> jax.Array:
        return predictor(target, latents) + latents["sigma"] * jax.random.normal(key, (NUM_ROWS,))

    replicates = Replicates(
        target, gibbs.Gibbs(gibbs.Options(), 0), NUM, draw, lambda outcome, row: {**fixed, "outcome": outcome[row]}
    )
    one, other = (
        quantities(target, dict(replicates.latents(position)), outcomes)
        for position, outcomes in (replicates.after(turns), replicates.exact(2))
    )
    return min(stats.ks_2samp(a, b, method="asymp").pvalue for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("turns", [1, pytest.param(12, marks=pytest.mark.verify)])
def test_effects_and_outcomes_are_drawn_from_one_joint_distribution(turns: int) -> None:
    assert smallest_p(turns) >= ALPHA


def test_a_wrong_draw_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = conditionals._redraw_scale
    monkeypatch.setattr(
        conditionals,
        "_redraw_scale",
        lambda key, part, scale, square, number: right(key, part, scale, square, number + 2),
    )
    assert smallest_p(4) < ALPHA


@pytest.mark.parametrize("total", [0.3, 1.0, 24.0])
def test_sigma_has_its_conditional_distribution_whatever_the_weights_sum_to(total: float) -> None:
    own, spec, _ = prepared()
    model, square = Glm(own, spec), 0.7 * total
    # Without products, the draws of intercept and coefficients change no residual.
    sums = {
        "gram": jnp.zeros((2, 2)),
        "cross": jnp.zeros(2),
        "square": jnp.float64(square),
        "count": jnp.float64(total),
    }
    latents = model.prior(spec).sample(seed=jax.random.key(0))

    def step(sigma: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        return model.redraw_rest(key, {**latents, "sigma": sigma}, sums)["sigma"], None

    chains = jax.vmap(lambda key: jax.lax.scan(step, jnp.float64(1), jax.random.split(key, 100))[0])
    drawn = np.log(jax.jit(chains)(jax.random.split(jax.random.key(1), 4 * NUM)))
    grid = np.linspace(-20, 8, 20_001)
    # The prior is exponential(1), and the Jacobian determinant of the log is sigma.
    log_density = -np.exp(grid) + grid - total * grid - square / 2 * np.exp(-2 * grid)
    cumulative = np.cumsum(np.exp(log_density - log_density.max()))
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cumulative / cumulative[-1])).pvalue > ALPHA
