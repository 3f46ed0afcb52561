"""Find moments of the targets without Markov chains, and keep them in ``reference.csv``.

Hierarchical regressions are normal given their two scales, over which a grid is summed. The moments of the others are found by
adaptive importance sampling.
The proposal is a multivariate t with five degrees of freedom at the mode, refitted twice to the weighted draws (Cappé,
Guillin, Marin and Robert 2004, doi:10.1198/106186004X12803). It shares only the log density with the samplers that are
held to its results::

    .venv-peers/bin/python -m bayesmesh_reproduction.benchmarks.convergence.reference [TARGET ...]
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh_reproduction.benchmarks.convergence.posterior import REFERENCE, FlatDensity, Posterior
from bayesmesh_reproduction.benchmarks.convergence.targets import TARGETS, Data, Hierarchical

DEGREES = 5.0
"""Degrees of freedom of the proposal: heavier tails than any of the posteriors."""

NUM_FITS, NUM_DRAWS, CHUNK = (2**15, 2**17), 2**19, 2**11

LEAST_ESS, LARGEST_SHARE = 20_000.0, 0.01
"""Minimum number of effective draws, and maximum share of a single weight, for an accepted reference."""

FIELDS = ("target", "quantity", "mean", "sd", "error")


Evaluate = Callable[[np.ndarray], tuple[jax.Array, jax.Array]]
"""From vectors (draw, coordinate) to log densities (draw,) and quantities (draw, quantity)."""


class Moments(NamedTuple):
    """Moments of all quantities (quantity,), with standard errors of the means.

    Attributes:
        ess: effective number of draws; infinite for a sum over a grid.
        largest_share: largest weight of a draw; for a grid, largest weight at its edge over that in its middle.
    """

    mean: np.ndarray
    sd: np.ndarray
    error: np.ndarray
    ess: float
    largest_share: float


def importance_moments(density: FlatDensity, seed: int = 0, num_draws: int = NUM_DRAWS) -> Moments:
    """Return the moments of all constrained quantities of a posterior."""
    centre = _climb(density)
    hessian = jax.jit(jax.hessian(lambda z: -density.log_density(z)))(centre)
    values, vectors = np.linalg.eigh(np.asarray(hessian))
    covariance = (vectors / np.maximum(values, 1e-3)) @ vectors.T
    evaluate = jax.jit(jax.vmap(lambda z: (density.log_density(z), density.constrain(z))))
    rng, at = np.random.default_rng(seed), np.asarray(centre)
    for count in (*NUM_FITS, num_draws):
        z, log_weight, quantities = _propose(rng, at, covariance, count, evaluate)
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        at = weight @ z
        covariance = (weight * (z - at).T) @ (z - at) + 1e-10 * np.eye(len(at))
    mean = weight @ quantities
    sd = np.sqrt(weight @ (quantities - mean) ** 2)
    error = np.sqrt(weight**2 @ (quantities - mean) ** 2)
    return Moments(mean, sd, error, float(1 / (weight**2).sum()), float(weight.max()))


def hierarchical_moments(rows: Data) -> Moments:
    """Return the moments of a `Hierarchical` regression: given noise and spread, all other latents are normal."""
    num_rows, width = rows["x"].shape
    member = rows["group"][:, None] == np.arange(Hierarchical.NUM_GROUPS)
    design = np.concatenate([member, np.ones((num_rows, 1)), rows["x"]], axis=1)
    scale = np.concatenate([np.ones(Hierarchical.NUM_GROUPS), [5.0], np.full(width, 2.5)])
    gram, product, square = design.T @ design, design.T @ rows["y"], rows["y"] @ rows["y"]
    logs, means, variances = [], [], []
    for noise in (noises := np.linspace(0.5, 2.0, 151)):
        for spread in (spreads := np.linspace(0.005, 3.0, 300)):
            # The columns of the groups are standardised effects times the spread.
            stretch = np.where(np.arange(len(scale)) < Hierarchical.NUM_GROUPS, spread, 1.0) * scale
            precision = np.eye(len(scale)) + gram * np.outer(stretch, stretch) / noise**2
            covariance = np.linalg.inv(precision)
            mean = covariance @ (product * stretch) / noise**2
            quadratic = square / noise**2 - mean @ precision @ mean
            log_marginal = -num_rows * math.log(noise) - 0.5 * (np.linalg.slogdet(precision)[1] + quadratic)
            logs.append(log_marginal - 0.5 * (noise / 5) ** 2 - 0.5 * (spread / 2) ** 2)
            means.append(np.concatenate([mean * scale, [noise, spread]]))
            variances.append(np.concatenate([np.diag(covariance) * scale**2, [0.0, 0.0]]))
    weight = np.exp(np.array(logs) - max(logs)).reshape(len(noises), len(spreads))
    edge = max(weight[0].max(), weight[-1].max(), weight[:, -1].max())
    weight = weight.ravel() / weight.sum()
    mean = weight @ np.array(means)
    sd = np.sqrt(weight @ (np.array(variances) + (np.array(means) - mean) ** 2))
    # By name: group, intercept, noise, slope, spread.
    groups, slopes = range(Hierarchical.NUM_GROUPS), range(Hierarchical.NUM_GROUPS + 1, len(scale))
    order = [*groups, Hierarchical.NUM_GROUPS, len(scale), *slopes, len(scale) + 1]
    return Moments(mean[order], sd[order], np.zeros(len(order)), math.inf, float(edge))


def _propose(
    rng: np.random.Generator, at: np.ndarray, covariance: np.ndarray, count: int, evaluate: Evaluate
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return draws (draw, coordinate) of the t distribution, log weights and quantities."""
    size = len(at)
    factor = np.linalg.cholesky(covariance)
    normal = rng.standard_normal((count, size))
    scale = np.sqrt(DEGREES / rng.chisquare(DEGREES, count))
    z = at + scale[:, None] * (normal @ factor.T)
    square = scale**2 * (normal**2).sum(axis=1)
    log_proposal = -0.5 * (DEGREES + size) * np.log1p(square / DEGREES)
    found = [evaluate(z[i : i + CHUNK]) for i in range(0, count, CHUNK)]
    log_density, quantities = (np.concatenate([np.asarray(pair[i]) for pair in found]) for i in range(2))
    log_weight = np.where(np.isfinite(log_density), log_density - log_proposal, -math.inf)
    return z, log_weight, np.where(np.isfinite(quantities), quantities, 0.0)


def _climb(density: FlatDensity) -> jax.Array:
    """Return a mode, by damped Newton steps from the origin."""
    value = jax.jit(density.log_density)
    derivatives = jax.jit(lambda z: (jax.grad(density.log_density)(z), jax.hessian(density.log_density)(z)))
    z = jnp.zeros(density.size)
    for _ in range(100):
        gradient, hessian = map(np.asarray, derivatives(z))
        values, vectors = np.linalg.eigh(-hessian)
        step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), 1e-2))
        before, length = value(z), 1.0
        while length > 1e-6 and not value(z + length * step) > before:
            length /= 2
        if length <= 1e-6:
            break
        z = z + length * step
    return z


def main(names: list[str]) -> None:
    """Write the moments of the named targets, or of all that have no exact ones, beside those that are there.

    Raises:
        SystemExit: importance sampling is too inefficient for a target.
    """
    wanted = names or [k for k, target in TARGETS.items() if not target.known and not target.experiment]
    kept = list(csv.DictReader(REFERENCE.open(newline=""))) if REFERENCE.exists() else []
    by_target = {name: [row for row in kept if row["target"] == name] for name in TARGETS}
    for name in wanted:
        posterior = Posterior(name, "float64")
        density = FlatDensity(posterior)
        is_normal = isinstance(posterior.model(), Hierarchical)
        found = hierarchical_moments(posterior.rows) if is_normal else importance_moments(density)
        print(f"{name}: {found.ess:,.0f} effective draws, largest weight {found.largest_share:.2g}", flush=True)
        if found.ess < LEAST_ESS or found.largest_share > LARGEST_SHARE:
            raise SystemExit(f"{name}: importance sampling is too inefficient; nothing is written for it")
        by_target[name] = [
            dict(zip(FIELDS, (name, quantity, f"{m:.6g}", f"{s:.6g}", f"{e:.3g}"), strict=True))
            for quantity, m, s, e in zip(density.names, found.mean, found.sd, found.error, strict=True)
        ]
        with REFERENCE.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for rows in by_target.values() for row in rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1:])
