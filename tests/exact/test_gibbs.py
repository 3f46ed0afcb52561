"""Exact draws of users, films, level and noise leave the joint distribution of latents and ratings as it is; see `joint`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.kernels import gibbs
from bayesmesh.models import _redraws, rating_factorization
from bayesmesh.models.rating_factorization import Options, RatingFactorization
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows
from joint import Replicates

USERS, FILMS, WIDTH = 5, 4, 2
NUM, ALPHA = 3_000, 1e-6
CENTRE, SD, BIAS_SCALE = 3.0, 1.2, 0.4
CELLS = np.array([(u, f) for u in range(USERS) for f in range(FILMS) if (u * 3 + f) % 4])
"""Three quarters of all cells."""


@functools.cache
def spec() -> DataSpec:
    fields = {"film": FieldSpec((), "int32"), "rating": FieldSpec((), "float64")}
    variables = {
        "user": Variable("category", levels=tuple(f"user {i}" for i in range(USERS))),
        "film": Variable("category", levels=tuple(f"film {i}" for i in range(FILMS))),
    }
    constants = {"rating_mean": CENTRE, "rating_sd": SD}
    counts = tuple(np.bincount(CELLS[:, 0], minlength=USERS).tolist())
    return DataSpec(len(CELLS), fields, constants, "float64", counts, variables)


def make_target(model_class: Any = RatingFactorization) -> Target:
    model = model_class(Options(width=WIDTH, bias_scale=BIAS_SCALE, factor_scale=0.9, noise_scale=0.8), spec())
    # Two devices and small tiles: padding is part of what is tested.
    return Target(model, spec(), lay_out_rows(len(CELLS), 2, 4, spec().entry_counts))


def draw_ratings(key: jax.Array, z: dict[str, jax.Array]) -> jax.Array:
    user, film = CELLS.T
    products = (z["user_embeddings"][user] * z["film_embeddings"][film]).sum(axis=1)
    expected = z["mean"] + z["user_biases"][user] + z["film_biases"][film] + products
    return expected + z["sigma"] * jax.random.normal(key, expected.shape)


def smallest_p(turns: int, model_class: Any = RatingFactorization) -> float:
    target = make_target(model_class)
    slots = target.layout.slots(range(target.layout.num_devices))
    fixed = {
        "is_row": slots.is_row,
        "entry_of_row": slots.entry_of_row,
        "film": CELLS[:, 1].astype(np.int32)[slots.row],
    }
    fixed = {k: jnp.asarray(v) for k, v in fixed.items()}
    replicates = Replicates(
        target,
        gibbs.Gibbs(gibbs.Options(), 0),
        NUM,
        draw_ratings,
        lambda ratings, row: {**fixed, "rating": ratings[row]},
    )
    position, ratings = replicates.after(turns)
    latents = jax.device_get(replicates.latents(position))
    embedding = np.sqrt(0.9 * SD / np.sqrt(WIDTH))
    scales = {f"{s}_embeddings": embedding for s in ("user", "film")} | {
        f"{s}_biases": BIAS_SCALE * SD for s in ("user", "film")
    }
    found = [
        stats.kstest((latents["mean"] - CENTRE) / SD, "norm").pvalue,
        stats.kstest(latents["sigma"] / (0.8 * SD), "halfnorm").pvalue,
    ]
    for name, scale in scales.items():
        z = latents[name].reshape(NUM, -1) / scale
        found += [stats.kstest(x, "norm").pvalue for x in z.T]
        found.append(stats.kstest((z**2).sum(1), stats.chi2(z.shape[1]).cdf).pvalue)
        found.append(stats.kstest(z.sum(1) / np.sqrt(z.shape[1]), "norm").pvalue)
    fresh, data = replicates.exact(2)
    others = quantities(jax.device_get(replicates.latents(fresh)), np.asarray(data))
    for one, other in zip(quantities(latents, np.asarray(ratings)), others, strict=True):
        found.append(stats.ks_2samp(one, other, method="asymp").pvalue)
    return float(np.min(found))


def quantities(z: dict[str, np.ndarray], ratings: np.ndarray) -> list[np.ndarray]:
    """What ties latents to ratings, and latents to each other, (replicate,)."""
    user, film = CELLS.T
    products = (z["user_embeddings"][:, user] * z["film_embeddings"][:, film]).sum(axis=2)
    expected = z["mean"][:, None] + z["user_biases"][:, user] + z["film_biases"][:, film] + products
    residual = (ratings - expected) / z["sigma"][:, None]
    level = z["mean"] + z["user_biases"].mean(1) + z["film_biases"].mean(1)
    return [
        products.sum(1),
        expected[:, 0],
        (residual**2).sum(1),
        (residual * products).sum(1),
        level,
        z["sigma"] * expected.std(1),
    ]


@pytest.mark.parametrize("turns", [1, pytest.param(12, marks=pytest.mark.verify)])
def test_latents_and_ratings_are_drawn_from_one_joint_distribution(turns: int) -> None:
    assert smallest_p(turns) >= ALPHA


DEFECTS: dict[str, Any] = {
    "shifts of biases for which the mean does not make up": (_redraws, 'latents["mean"] - s - t', 'latents["mean"]', "redraw_level"),
    "noise without its Jacobian": (_redraws, "(num_rows - 1) / 2", "num_rows / 2", "redraw_noise"),
    "shifts with the prior of the biases for embeddings": (_redraws, "jnp.broadcast_to(ratio, size - 1)", "jnp.ones(size - 1)", "redraw_factors"),
}  # fmt: skip
"""Name -> module, text and its replacement, and the function that `rating_factorization` takes from the module."""


@pytest.mark.parametrize(
    "defect", [d if i == 1 else pytest.param(d, marks=pytest.mark.verify) for i, d in enumerate(DEFECTS)]
)
def test_a_defect_is_seen(defect: str, seed_defect, monkeypatch) -> None:
    module, text, replacement, function = DEFECTS[defect]
    mutant = seed_defect(module, text, replacement)
    monkeypatch.setattr(rating_factorization, function, getattr(mutant, function))
    assert not smallest_p(6) >= ALPHA


class Careless(RatingFactorization):
    """Weighs ratings by the inverse of the standard deviation."""

    def unit_regression(self, group: str, latents: Any, rows: Any) -> Any:
        found = super().unit_regression(group, latents, rows)
        return found._replace(weight=latents["sigma"] ** -1)


@pytest.mark.verify
def test_a_wrong_regression_is_seen() -> None:
    assert not smallest_p(1, Careless) >= ALPHA
