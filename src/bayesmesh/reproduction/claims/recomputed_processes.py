"""Log densities of the published hidden Markov model, computed again with NumPy at the latents of every row."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.reproduction.claims.recomputed_rows import AGAIN, Row, recompute
from bayesmesh.reproduction.claims.results import Reading, Results

__all__ = ["log_density_again"]


def log_density_again(results: Results, file: str, quantity: str, **where: str) -> Reading:
    """Compute every row of the table again, and return one quantity of the row that is asked for.

    Column ``quantity`` says which log density, in nats, column ``value`` holds at the latents of the row:
    ``log_likelihood_first`` of the 70 processes, ``log_likelihood_all``, ``derivative_signal`` of the latter, or
    ``log_prior_`` of a parameter on the unconstrained scale that PyMC samples. Whoever evaluated the row, column ``by``,
    also evaluated points that were drawn in the run, by the seed that stands in their rows.

    Raises:
        NotRun: there is no table, or no such row.
        StoreError: a row says another number, or a point was not drawn in the run that wrote the table.
    """

    def compute(row: Row) -> float:
        latents = _latents(file, row)
        try:
            # By the texts of the row, which several numbers of a claim are read beside.
            return _of_published_processes(row["quantity"], *(row[name] for name in latents._fields))
        except KeyError as error:
            raise StoreError(f"{file}: nothing is known of the quantity {error}", AGAIN) from error

    found = recompute(results, file, "value", compute, 1e-9, {"quantity": quantity, **where})
    _check_drawn(results, file, quantity, **where)
    return found


class _Latents(NamedTuple):
    signal: complex
    noise: float
    initial: np.ndarray
    transition: np.ndarray


def _latents(file: str, row: Row) -> _Latents:
    try:
        initial, transition = (np.array(row[name].split(), np.float64) for name in ("initial", "transition"))
        return _Latents(float(row["signal"]), float(row["noise"]), initial.reshape(3), transition.reshape(3, 3))
    except (KeyError, ValueError) as error:
        raise StoreError(f"{file}: a row has no latents to compute it from: {error!r}", AGAIN) from error


def _check_drawn(results: Results, file: str, quantity: str, **where: str) -> None:
    """Hold the points that have a seed to it, and the seeds, nanoseconds of the clock, to the time of the run.

    Raises:
        StoreError: a point or its seed is another, or who evaluated what is asked for did so at no drawn point.
    """
    by = results.rows(file, quantity=quantity, **where).cells.iloc[0].get("by", "")
    if not any(results.rows(file, quantity=quantity, by=by).cells.get("seed", ())):
        raise StoreError(f"{file}: {quantity} by {by} is at no point that was drawn in the run", AGAIN)
    for row in results.rows(file).records():
        if not row["seed"]:
            continue
        try:
            seed = int(row["seed"])
            written = datetime.strptime(row["measured_at"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
        except (KeyError, ValueError) as error:
            raise StoreError(f"{file}: a drawn point without seed or time: {error!r}", AGAIN) from error
        if not -60 < written - seed / 1e9 < _LONGEST_S:
            raise StoreError(f"{file}: seed {seed} was not drawn in the run that ended at {row['measured_at']}", AGAIN)
        drawn, said = (np.hstack([np.ravel(each) for each in z]) for z in (_draw(seed), _latents(file, row)))
        if not np.allclose(drawn, said, rtol=1e-12, atol=0):
            raise StoreError(f"{file}: case {row['case']} is not the point of seed {seed}", AGAIN)


_LONGEST_S = 3600.0
"""From the draw of a point to the table; two processes of at most 300 s evaluate it."""


def _draw(seed: int) -> _Latents:
    """Return the point of a seed, as the benchmark draws it."""
    generator = np.random.default_rng(seed)
    signal, noise = generator.uniform(0.7, 1.4), generator.uniform(0.1, 0.45)
    return _Latents(signal, noise, generator.dirichlet(np.full(3, 5.0)), generator.dirichlet(np.full(3, 5.0), 3))


_LOG_NORMAL = 0.5 * math.log(2 * math.pi)


def _log_simplex(p: np.ndarray) -> float:
    """Log density of Dirichlet(1, 1, 1) for each row of `p`, summed, with the volume of PyMC's map to the simplex."""
    return float(sum(math.log(2) + math.log(3) + np.log(row).sum() for row in np.atleast_2d(p)))


_QUANTITIES: Mapping[str, Callable[[np.ndarray, _Latents], float]] = {
    "log_likelihood_first": lambda observed, z: _forward(observed[:1], z).real,
    "log_likelihood_all": lambda observed, z: _forward(observed, z).real,
    "log_likelihood": lambda observed, z: _forward(observed, z).real,
    # A step along the imaginary axis: nothing is subtracted, so that no digit is lost.
    "derivative_signal": lambda observed, z: _forward(observed, z._replace(signal=z.signal + 1e-30j)).imag / 1e-30,
    "log_prior_signal": lambda _, z: -0.5 * z.signal.real**2 - _LOG_NORMAL,
    "log_prior_noise": lambda _, z: math.log(2) - 0.5 * z.noise**2 - _LOG_NORMAL + math.log(z.noise),
    "log_prior_initial": lambda _, z: _log_simplex(z.initial),
    "log_prior_transition": lambda _, z: _log_simplex(z.transition),
}


@functools.lru_cache(maxsize=256)
def _of_published_processes(quantity: str, *texts: str) -> float:
    """Return a quantity at the latents of a row; KeyError where it is none."""
    row = dict(zip(_Latents._fields, texts, strict=True))
    return _QUANTITIES[quantity](_published_processes(), _latents("", row))


_INITIAL = (0.9, 0.09, 0.01)
_TRANSITION = ((0.9, 0.09, 0.01), (0.1, 0.8, 0.1), (0.2, 0.1, 0.7))


@functools.cache
def _published_processes() -> np.ndarray:
    """Return the 70 processes of 51 observations, as the source simulates them after a first one."""
    generator = np.random.default_rng(104109109)

    def process(rows: Sequence[Sequence[float]] = _TRANSITION) -> np.ndarray:
        states = [int(generator.choice(3, p=_INITIAL))]
        for _ in range(50):
            states.append(int(generator.choice(3, p=rows[states[-1]])))
        return generator.normal((np.array(states) + 1) * 1.15, 0.15)

    process()
    return np.stack([process() for _ in range(70)])


def _forward(observed: np.ndarray, latents: _Latents) -> complex:
    """Return the log-likelihood of processes, (processes, times), by the forward recursion in log scale, in nats."""
    noise, means = latents.noise, (np.arange(3) + 1) * complex(latents.signal)
    emission = -0.5 * ((observed[..., None] - means) / noise) ** 2 - math.log(noise) - _LOG_NORMAL
    log_state = np.log(latents.initial) + emission[:, 0]
    for time in range(1, observed.shape[1]):
        joint = log_state[:, :, None] + np.log(latents.transition)
        most = joint.real.max(1)
        log_state = emission[:, time] + most + np.log(np.exp(joint - most[:, None]).sum(1))
    most = log_state.real.max(1)
    return complex((most + np.log(np.exp(log_state - most[:, None]).sum(1))).sum())
