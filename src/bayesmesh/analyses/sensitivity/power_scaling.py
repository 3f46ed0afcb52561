"""Weight draws as if prior or likelihood were raised to a power, and measure how far each quantity moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from arviz_stats.base import array_stats
from jaxtyping import Float

from bayesmesh.analyses._density import LogDensity
from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.figures.documents import render_csv
from bayesmesh.analyses.options import SensitivityOptions as Options
from bayesmesh.files import write_text
from bayesmesh.store.posterior.coordinates import drawn_arrays, named_coordinates
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Posterior

POWERS = (0.99, 1.01)
"""Powers between which the change is measured."""

MIN_DRAWS = 40
"""Fewest draws from which tails can be smoothed."""


class Sensitive(NamedTuple):
    """Sensitivities, or NaN, of one coordinate of a summary or of a latent.

    Attributes:
        quantity: name, with its index if it has one.
        prior, likelihood: distance by which the distribution changes per doubling of the power.
    """

    quantity: str
    prior: float
    likelihood: float


def scale_powers(bound: BoundModel, posterior: Posterior, options: Options, path: Path) -> None:
    """Write the sensitivities of all listed quantities.

    Args:
        bound: model and data.
        posterior: the draws.
        options: settings.
        path: of the table.

    Reference:
        Kallioinen, Paananen, Bürkner and Vehtari 2024, doi:10.1007/s11222-023-10366-5.
    """
    jax.config.update("jax_enable_x64", True)
    density = LogDensity(bound)
    most = density.draws_in_memory(options.draws)
    positions = density.positions(posterior, most)
    flat = positions.reshape(-1, density.num_coordinates)
    log_prior, log_likelihood = density.log_prior_of_latents(flat), density.log_likelihood(flat)
    is_used = np.isfinite(log_prior) & np.isfinite(log_likelihood)
    stride = max(1, -(-posterior.num_chains * posterior.num_draws // most))
    is_enough = is_used.sum() >= MIN_DRAWS
    weights = [_weights(values[is_used]) if is_enough else [] for values in (log_prior, log_likelihood)]
    found = [
        Sensitive(name, *(_sensitivity(draws.ravel()[is_used], each) for each in weights))
        for name, draws in _quantities(posterior, options.quantities, stride)
    ]
    write_text(path, render_csv(Sensitive._fields, found))


def _weights(log_values: Float[np.ndarray, " draw"]) -> list[Float[np.ndarray, " draw"]]:
    """Return the weights of draws at both powers."""
    if np.ptp(log_values) < 1e-9:
        return [np.full(len(log_values), 1 / len(log_values)) for _ in POWERS]
    found = []
    for power in POWERS:
        try:
            log_weights = array_stats.power_scale_lw(log_values, alpha=power)
        except ValueError:
            # All values of a tail are equal, so smoothing cannot fit a distribution to them.
            log_weights = (power - 1) * log_values
        weights = np.exp(log_weights - log_weights.max())
        found.append(weights / weights.sum())
    return found


def _sensitivity(draws: Float[np.ndarray, " draw"], weights: list[Float[np.ndarray, " draw"]]) -> float:
    if not weights or not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return float("nan")
    alone = [each[None] for each in (draws, *weights)]
    return float(array_stats.power_scale_sense(alone[0], alone[1], alone[2], *POWERS))


def _quantities(posterior: Posterior, most: int, stride: int) -> Iterator[tuple[str, Float[np.ndarray, "chain draw"]]]:
    """Yield names and draws of summaries that are not latents, and of latents: at most `most` in all."""
    arrays = {name: posterior.array("posterior", name) for name in posterior.latents}
    if posterior.find("summaries/log_density") is not None:
        about = ("log_density", "log_likelihood")
        summaries = {k: v for k, v in drawn_arrays(posterior.group("summaries")).items() if k not in about}
        arrays = {**{k: v for k, v in summaries.items() if k not in arrays}, **arrays}
    for name, draws in named_coordinates(arrays, most, BLOCK_BYTES):
        yield name, draws[:, ::stride].astype(np.float64)
