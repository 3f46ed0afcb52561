"""Users and films of normal ratings, drawn exactly: their normals against the log density, on any layout of users."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.config.registry import load_component
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.gibbs import Options as GibbsOptions
from bayesmesh.models.rating_factorization import Options, RatingFactorization
from bayesmesh.sampling.density.log_density import BoundTarget, Target
from bayesmesh.sampling.density.normal_units import draw_normals
from bayesmesh.sampling.density.rows import lay_out_rows

USERS, FILMS, WIDTH, ROWS, CHAINS = 7, 5, 2, 40, 2
LAYOUTS = {"one place": (1, ROWS), "tiles": (1, 9), "devices": (4, 9)}


@functools.cache
def table(likelihood: Any = "gaussian") -> tuple[RatingFactorization, DataSpec, dict[str, np.ndarray]]:
    """Ratings of six of seven users and four of five films, in random order."""
    random = np.random.default_rng(1)
    rows = {
        "user": random.choice(USERS, ROWS, p=[0.1, 0.1, 0.1, 0, 0.1, 0.5, 0.1]).astype(np.int32),
        "film": random.integers(0, FILMS - 1, ROWS).astype(np.int32),
        "rating": random.integers(1, 6, ROWS).astype(np.uint8),
    }
    fields = {k: FieldSpec((), v.dtype.name) for k, v in rows.items()}
    levels = {"user": USERS, "film": FILMS}
    variables = {k: Variable("category", levels=tuple(f"{k} {i}" for i in range(n))) for k, n in levels.items()}
    spec = DataSpec(ROWS, fields, {}, "float64", variables={**variables, "rating": Variable("number")})
    options = Options(width=WIDTH, bias_scale=0.6, factor_scale=0.7, noise_scale=0.8, likelihood=likelihood)
    spec, made = prepare_rows(functools.partial(RatingFactorization.prepare, options), spec, rows)
    return RatingFactorization(options, spec), spec, made


@functools.cache
def bound(layout: str, likelihood: Any = "gaussian") -> BoundTarget:
    model, spec, rows = table(likelihood)
    devices, tile = LAYOUTS[layout]
    target = Target(model, spec, lay_out_rows(ROWS, devices, tile, spec.entry_counts))
    return target.bind({k: jnp.asarray(v) for k, v in target.lay_out(rows).items()})


def draws(target: BoundTarget) -> Position:
    return jax.vmap(target.target.sample_prior)(jax.random.split(jax.random.key(3), CHAINS))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("group", [0, 1])
def test_a_unit_has_the_slope_of_its_normal(layout: str, group: int) -> None:
    """The gradient of the log density by a unit's coordinates x is  h - P x."""
    target = bound(layout)
    normals = target.normals
    assert normals is not None
    name = normals.groups[group]
    position = draws(target)
    precision, linear = jax.jit(jax.vmap(lambda z: normals._posterior(z, name)))(normals.latents(position))
    gradient = jax.jit(target.log_density)(position).gradient
    at, slope = normals.take(position, name), normals.take(gradient, name)
    found = linear - jnp.einsum("cuij,cuj->cui", precision, at)
    is_unit = (
        np.asarray(target.mask.local)[:, 0] > 0 if name == "local" and target.mask.local is not None else slice(None)
    )
    np.testing.assert_allclose(found[:, is_unit], slope[:, is_unit], rtol=1e-9, atol=1e-9)


def test_normals_are_drawn_with_their_means_and_covariances() -> None:
    random = np.random.default_rng(2)
    roots, linear = random.normal(size=(3, 2, 2)), random.normal(size=(3, 2))
    precision = roots @ np.swapaxes(roots, 1, 2) + 0.3 * np.eye(2)
    drawn = jax.jit(jax.vmap(lambda k: draw_normals(k, jnp.asarray(precision), jnp.asarray(linear))))(
        jax.random.split(jax.random.key(0), 5_000)
    )
    centre = np.linalg.solve(precision, linear[..., None])[..., 0]
    white = np.einsum("uji,duj->dui", np.linalg.cholesky(precision), np.asarray(drawn) - centre)
    for z in white.reshape(-1, 6).T:
        assert stats.kstest(z, "norm").pvalue > 1e-5
    assert abs(np.corrcoef(white.reshape(-1, 6).T) - np.eye(6)).max() < 0.07


def test_draws_do_not_depend_on_the_layout_and_padding_stays() -> None:
    kernel = load_component("kernel", "gibbs")(GibbsOptions(rounds=2), 0)
    keys = jax.random.split(jax.random.key(7), CHAINS)
    reference: Any = None
    for layout in LAYOUTS:
        target = bound(layout)

        @jax.jit
        def step(position: Position, target: BoundTarget = target) -> Any:
            return kernel.step(keys, kernel.init(keys, position, target), target, ())

        state, info = step(draws(target))
        density = jax.jit(target.log_density)(state.position)
        np.testing.assert_allclose(info.lp, density.log_prior + density.log_likelihood, rtol=1e-12)
        np.testing.assert_array_equal(info.log_likelihood, state.log_likelihood)
        assert not np.asarray(state.position.local[:, USERS:]).any()
        latents = jax.device_get(jax.vmap(target.target.constrain)(state.position))
        reference = reference or latents
        for name, values in latents.items():
            np.testing.assert_allclose(values, reference[name], rtol=1e-8, atol=1e-9, err_msg=name)
            assert (values != jax.device_get(jax.vmap(target.target.constrain)(draws(target)))[name]).any(), name


def test_a_redraw_changes_no_rating_to_expect() -> None:
    target = bound("tiles")
    normals = target.normals
    assert normals is not None
    before = draws(target)
    after = jax.jit(normals.redraw)(jax.random.split(jax.random.key(8), CHAINS), before)
    moved = [np.abs(np.asarray(a - b)).min() for a, b in zip(after, before, strict=True) if a.size]
    assert (after.shared != before.shared).mean() > 0.9, moved
    values = [jax.jit(target.log_density)(q).log_likelihood for q in (before, after)]
    np.testing.assert_allclose(*values, rtol=1e-9)


def test_a_start_far_away_is_left_at_once() -> None:
    """No state may weigh so much that proposals are refused for long."""
    target = bound("one place")
    kernel = load_component("kernel", "gibbs")(GibbsOptions(rounds=3), 0)
    keys = jax.random.split(jax.random.key(9), CHAINS)

    def away(q: Position) -> Position:
        z = target.target.constrain(q)
        far = {**z, "sigma": jnp.asarray(50.0), "mean": jnp.asarray(-40.0), "user_biases": z["user_biases"] + 30}
        return target.target.position.pack(dict(target.target.bijector.inverse(far)))

    start = jax.vmap(away)(draws(target))
    after, _ = jax.jit(lambda q: kernel.step(keys, kernel.init(keys, q, target), target, ()))(start)
    found = jax.vmap(target.target.constrain)(after.position)
    assert (np.abs(found["mean"] - target.target.spec.constants["rating_mean"]) < 5).all()
    assert (found["sigma"] < 5).all()
