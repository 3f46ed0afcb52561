"""What no logit sees is drawn anew: logits stay, and the prior is left as it is."""

from __future__ import annotations

import functools
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.models import _redraws

USERS, FILMS, WIDTH, SCALE = 6, 3, 2, 0.7
SHAPES = {
    "user_embeddings": (USERS, WIDTH), "film_embeddings": (FILMS, WIDTH), "user_biases": (USERS,), "film_biases": (FILMS,)
}  # fmt: skip
NUM, TURNS, ALPHA = 4_000, 10, 1e-6


@functools.cache
def prior_draws() -> dict[str, jax.Array]:
    generator = np.random.default_rng(3)
    return {k: jnp.asarray(SCALE * generator.standard_normal((NUM, *s))) for k, s in SHAPES.items()}


def logits(z: dict[str, jax.Array]) -> np.ndarray:
    product = np.einsum("...uk,...fk->...uf", z["user_embeddings"], z["film_embeddings"])
    return product + np.asarray(z["user_biases"])[..., None] + np.asarray(z["film_biases"])[..., None, :]


def redraw(module: ModuleType) -> dict[str, jax.Array]:
    """Many transitions of draws of the prior."""

    def turn(i: jax.Array, latents: dict[str, jax.Array]) -> dict[str, jax.Array]:
        keys = jax.vmap(lambda k: jax.random.fold_in(k, i))(jax.random.split(jax.random.key(1), NUM))
        return jax.vmap(lambda k, z: module.redraw_factors(k, z, SCALE))(keys, latents)

    return jax.jit(lambda z: jax.lax.fori_loop(0, TURNS, turn, z))(prior_draws())


def smallest_p(after: dict[str, jax.Array]) -> float:
    """Of coordinates, of squared norms of columns, and of sums: all are normal or chi-squared under the prior."""
    found = []
    for name, value in after.items():
        z = np.asarray(value) / SCALE
        found += [stats.kstest(x, "norm").pvalue for x in z.reshape(NUM, -1).T[:4]]
        found.append(stats.kstest((z**2).reshape(NUM, -1).sum(1), stats.chi2(z[0].size).cdf).pvalue)
        found += [stats.kstest(x, stats.chi2(SHAPES[name][0]).cdf).pvalue for x in (z**2).sum(1).reshape(NUM, -1).T]
        found.append(stats.kstest(z.reshape(NUM, -1).sum(1) / z[0].size ** 0.5, "norm").pvalue)
    # The normals of a draw are independent: products of two columns, and of embeddings with biases.
    for side in ("user", "film"):
        columns, biases = np.asarray(after[f"{side}_embeddings"]), np.asarray(after[f"{side}_biases"])
        for a, b in ((columns[:, :, 0], columns[:, :, 1]), (columns[:, :, 0], biases)):
            scaled = (a * b).sum(1) / SCALE**2 / a.shape[1] ** 0.5
            found.append(float(stats.ttest_1samp(scaled, 0).pvalue))
            found.append(float(stats.ttest_1samp(scaled**2, 1).pvalue))
    return float(np.min(found))


def test_logits_stay_and_the_prior_is_left_as_it_is() -> None:
    before, after = prior_draws(), redraw(_redraws)
    np.testing.assert_allclose(logits(after), logits(before), atol=1e-7)
    for name in SHAPES:
        correlation = np.corrcoef(np.ravel(after[name]), np.ravel(before[name]))[0, 1]
        assert abs(correlation) < 0.9, f"{name} has moved"
    assert smallest_p(after) >= ALPHA


@pytest.mark.parametrize(
    ("text", "replacement"),
    [
        ("target = difference * s -", "target = -difference * s -"),
        pytest.param(
            "precision = now.users[k, k] * identity + now.films",
            "precision = now.users[k, k] * identity",
            marks=pytest.mark.verify,
        ),
        pytest.param(
            "quadratic = design.T @ design + len(moved) * jnp.diag(of_prior)",
            "quadratic = design.T @ design + jnp.diag(of_prior)",
            marks=pytest.mark.verify,
        ),
    ],
)
def test_a_wrong_density_of_the_orbit_is_seen(seed_defect, text: str, replacement: str) -> None:
    assert not smallest_p(redraw(seed_defect(_redraws, text, replacement))) >= ALPHA


def test_draws_of_single_precision_keep_it() -> None:
    latents = {k: v[0].astype(jnp.float32) for k, v in prior_draws().items()}
    after = _redraws.redraw_factors(jax.random.key(0), latents, SCALE)
    assert {k: (v.shape, v.dtype) for k, v in after.items()} == {k: (v.shape, v.dtype) for k, v in latents.items()}
    np.testing.assert_allclose(logits(after), logits(latents), atol=1e-5)
