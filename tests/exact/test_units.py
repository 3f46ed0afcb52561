"""Units with accept steps of their own leave the joint distribution of latents and data as it is (Geweke 2004).

Replicates of a small factorisation begin in exact draws of both, and take turns at a transition of the latents and a
fresh draw of the data.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.kernels import unit_hmc
from bayesmesh.kernels.base import Position
from bayesmesh.models.matrix_factorization import MatrixFactorization, Options
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows

USERS, FILMS, WIDTH, SCALE = 5, 4, 1, 1.5
NUM, TURNS, ALPHA = 3_000, 12, 1e-6


@functools.cache
def target() -> Target:
    spec = DataSpec(USERS, {"watched": FieldSpec((FILMS,), "uint8")}, {}, "float64")
    model = MatrixFactorization(Options(width=WIDTH, prior_scale=SCALE), spec)
    # Two devices and tiles of two rows: padding is part of what is tested.
    return Target(model, spec, lay_out_rows(USERS, 2, 2))


def keys(seed: int, iteration: Any) -> jax.Array:
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(seed), c))(jnp.arange(NUM))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def draw_data(key: jax.Array, position: Position) -> jax.Array:
    latents, none = target().constrain(position), {"watched": jnp.zeros((USERS, FILMS))}
    return target().model.predict(latents, none).sample(seed=key).astype(jnp.uint8)


@jax.jit
def exact_draws(seed: jax.Array) -> tuple[Position, jax.Array]:
    position = jax.vmap(target().sample_prior)(keys(seed, 0))
    return position, jax.vmap(draw_data)(keys(seed, 1), position)


def move(kernel: Any, key: jax.Array, position: Position, watched: jax.Array) -> tuple[Position, jax.Array]:
    """One transition of one chain, with data of its own, and its acceptance."""
    layout = target().layout
    slots = layout.slots(range(layout.num_devices))
    bound = target().bind({"is_row": jnp.asarray(slots.is_row), "watched": watched[slots.row]})
    state = kernel.init(key[None], jax.tree.map(lambda x: x[None], position), bound)
    rough = jax.tree.map(lambda x: jnp.full(x.shape, 0.4), position)
    tuning = unit_hmc.UnitTuning(jnp.asarray([1.3, 1.3]), rough)
    after, info = kernel.step(key[None], state, bound, tuning)
    return jax.tree.map(lambda x: x[0], after.position), info.acceptance_rate[0]


def smallest_p(module: ModuleType) -> float:
    kernel = module.UnitHmc(unit_hmc.Options(rounds=2), 0)
    target()  # not made while a program is traced

    @jax.jit
    def alternate(position: Position, watched: jax.Array) -> tuple[Position, jax.Array, jax.Array]:
        def turn(i: jax.Array, carry: Any) -> Any:
            position, watched, _ = carry
            position, acceptance = jax.vmap(lambda *a: move(kernel, *a))(keys(5, i), position, watched)
            return position, jax.vmap(draw_data)(keys(6, i), position), acceptance

        return jax.lax.fori_loop(0, TURNS, turn, (position, watched, jnp.zeros(NUM)))

    position, watched, acceptance = alternate(*exact_draws(1))
    assert 0.1 < acceptance.mean() < 0.97, "the test has power only where some proposals are rejected"
    latents = jax.vmap(target().constrain)(position)
    found = []
    for value in latents.values():
        z = np.asarray(value).reshape(NUM, -1) / SCALE
        found += [stats.kstest(x, "norm").pvalue for x in z.T]
        found.append(stats.kstest((z**2).sum(1), stats.chi2(z.shape[1]).cdf).pvalue)
    fresh, data = exact_draws(2)
    for one, other in zip(
        quantities(latents, watched), quantities(jax.vmap(target().constrain)(fresh), data), strict=True
    ):
        found.append(stats.ks_2samp(one, other, method="asymp").pvalue)
    return float(np.min(found))


def quantities(latents: dict[str, jax.Array], watched: jax.Array) -> list[np.ndarray]:
    """What ties latents to data, and latents to each other, (replicate,)."""
    z, y = {k: np.asarray(v) for k, v in latents.items()}, np.asarray(watched, np.float64)
    product = np.einsum("nuk,nfk->nuf", z["user_embeddings"], z["film_embeddings"])
    logits = product + z["user_biases"][..., None] + z["film_biases"][:, None]
    fit = np.where(y > 0, logits, -logits)
    return [-np.logaddexp(0, -fit).sum((1, 2)), product.sum((1, 2)), logits[:, 0, 0], (y * logits).mean((1, 2))]


@pytest.mark.verify
def test_latents_and_data_are_drawn_from_one_joint_distribution() -> None:
    assert smallest_p(unit_hmc) >= ALPHA


DEFECTS = {
    "units accept together": ("(log_uniform < log_ratio) & is_unit", "(log_uniform < log_ratio.mean(axis=1)[:, None]) & is_unit"),
    "accepts with the inverse ratio": ("(log_uniform < log_ratio) & is_unit", "(log_uniform < -log_ratio) & is_unit"),
    "likelihood left out of the ratio": ("+ (end.log_likelihood - begin.log_likelihood)", ""),
    "last half step missing": ("momentum_end = half + 0.5 * step * scale.whiten(end.gradient)", "momentum_end = half"),
}  # fmt: skip


@pytest.mark.verify
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_seen(defect: str, seed_defect) -> None:
    mutant = seed_defect(unit_hmc, *DEFECTS[defect], "UnitHmc")
    assert not smallest_p(mutant) >= ALPHA
