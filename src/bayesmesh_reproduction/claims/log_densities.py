"""Recompute the log densities of the published hidden Markov model with NumPy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh_reproduction.claims.recomputation import AGAIN, Row, recompute
from bayesmesh_reproduction.claims.results import Reading, Results


def log_density_again(results: Results, file: str, column: str, quantity: str, **where: str) -> Reading:
    """Recompute every row of the table and return the value of the requested row.

    Column ``value`` holds the log density named in column ``quantity``, in nats, at the latents of the row:
    ``log_likelihood_first`` of the 70 processes, ``log_likelihood_all``, ``derivative_signal`` of the latter, or
    ``log_prior_`` of a parameter on PyMC's unconstrained scale. Each evaluator, column ``by``, must also have evaluated
    points drawn in the run, whose rows hold their seeds.

    Raises:
        NotRun: the table or the row does not exist.
        StoreError: a row says another number, or a point was not drawn in the run that wrote the table.
    """

    def compute(row: Row) -> float:
        # Cached by the text of the row, because several numbers of a claim recompute the same rows.
        return _of_published_processes(row["quantity"], *(row[name] for name in _Latents._fields))

    found = recompute(results, file, column, compute, 1e-9, {"quantity": quantity, **where})
    _check_drawn(results, file, quantity, **where)
    return found


class _Latents(NamedTuple):
    signal: complex
    noise: float
    initial: np.ndarray
    transition: np.ndarray


def _latents(signal: str, noise: str, initial: str, transition: str) -> _Latents:
    first, rows = (np.array(text.split(), np.float64) for text in (initial, transition))
    return _Latents(float(signal), float(noise), first.reshape(3), rows.reshape(3, 3))


def _check_drawn(results: Results, file: str, quantity: str, **where: str) -> None:
    """Check that drawn points follow from their seeds, and that the seeds, clock times in ns, belong to the run.

    Raises:
        StoreError: a point does not follow from its seed, a seed is from another time, or the evaluator of the
            requested row has no drawn point.
    """
    by = results.rows(file, quantity=quantity, **where).cells.iloc[0].get("by", "")
    if not any(results.rows(file, quantity=quantity, by=by).cells.get("seed", ())):
        raise StoreError(f"{file}: {quantity} by {by} is at no point that was drawn in the run", AGAIN)
    for row in results.rows(file).records():
        if not row["seed"]:
            continue
        try:
            seed, point = int(row["seed"]), _latents(*(row[name] for name in _Latents._fields))
            written = datetime.strptime(row["measured_at"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
        except (KeyError, ValueError) as error:
            raise StoreError(f"{file}: a drawn point without seed or time: {error!r}", AGAIN) from error
        if not -60 < written - seed / 1e9 < _LONGEST_S:
            raise StoreError(f"{file}: seed {seed} was not drawn in the run that ended at {row['measured_at']}", AGAIN)
        drawn, said = (np.hstack([np.ravel(each) for each in z]) for z in (_draw(seed), point))
        if not np.allclose(drawn, said, rtol=1e-12, atol=0):
            raise StoreError(f"{file}: case {row['case']} is not the point of seed {seed}", AGAIN)


_LONGEST_S = 3600.0
"""Longest time from drawing a point to writing the table; two processes of at most 300 s each evaluate it."""


def _draw(seed: int) -> _Latents:
    """Draw the point of a seed as the benchmark does."""
    generator = np.random.default_rng(seed)
    signal, noise = generator.uniform(0.7, 1.4), generator.uniform(0.1, 0.45)
    return _Latents(signal, noise, generator.dirichlet(np.full(3, 5.0)), generator.dirichlet(np.full(3, 5.0), 3))


_LOG_NORMAL = 0.5 * math.log(2 * math.pi)


def _log_simplex(p: np.ndarray) -> float:
    """Return the log density of Dirichlet(1, 1, 1) for each row of `p`, summed, with the volume of PyMC's map to the simplex."""
    return float(sum(math.log(2) + math.log(3) + np.log(row).sum() for row in np.atleast_2d(p)))


_QUANTITIES: Mapping[str, Callable[[np.ndarray, _Latents], float]] = {
    "log_likelihood_first": lambda observed, z: _forward(observed[:1], z).real,
    "log_likelihood_all": lambda observed, z: _forward(observed, z).real,
    "log_likelihood": lambda observed, z: _forward(observed, z).real,
    # Complex-step differentiation subtracts nothing, so it loses no digits.
    "derivative_signal": lambda observed, z: _forward(observed, z._replace(signal=z.signal + 1e-30j)).imag / 1e-30,
    "log_prior_signal": lambda _, z: -0.5 * z.signal.real**2 - _LOG_NORMAL,
    "log_prior_noise": lambda _, z: math.log(2) - 0.5 * z.noise**2 - _LOG_NORMAL + math.log(z.noise),
    "log_prior_initial": lambda _, z: _log_simplex(z.initial),
    "log_prior_transition": lambda _, z: _log_simplex(z.transition),
}


@functools.lru_cache(maxsize=256)
def _of_published_processes(quantity: str, *texts: str) -> float:
    """Return a quantity at the latents of a row; raise KeyError for an unknown quantity."""
    return _QUANTITIES[quantity](_published_processes(), _latents(*texts))


@functools.cache
def _published_processes() -> np.ndarray:
    """Return the 70 processes of 51 observations, as the source simulates them after a first one."""
    generator = np.random.default_rng(104109109)
    initial, transition = (0.9, 0.09, 0.01), ((0.9, 0.09, 0.01), (0.1, 0.8, 0.1), (0.2, 0.1, 0.7))
    processes = []
    for _ in range(71):
        states = [generator.choice(3, p=initial)]
        for _ in range(50):
            states.append(generator.choice(3, p=transition[states[-1]]))
        processes.append(generator.normal((np.array(states) + 1) * 1.15, 0.15))
    return np.stack(processes[1:])


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
