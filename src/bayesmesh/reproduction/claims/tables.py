"""Witnesses of benchmark tables: every row is computed again, with NumPy, from the inputs that stand in it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.files import read_json
from bayesmesh.reproduction.claims.claims_file import MeasureSettings
from bayesmesh.reproduction.claims.reading import NotRun, Reading, matching_rows
from bayesmesh.store.receipts import check_receipt

__all__ = ["device_sums", "equation_counts", "hidden_markov", "logistic_gradient", "same_density"]

Row = Mapping[str, str]
_REMEDY = "run the benchmark again"


def _recompute(
    results: Path, measure: MeasureSettings, column: str, compute: Callable[[Row], float], tolerance: float
) -> Reading:
    """Compute all rows, hold the column to what comes out, and return the value of the row that is asked for.

    Raises:
        NotRun: there is no table, or no such row.
        StoreError: a row says another number, or only the published point is there.
    """
    path = results / str(measure.file)
    if not path.exists():
        raise NotRun(f"{measure.file} is not there")
    rows = matching_rows(path, {})
    for row in rows:
        found, said = compute(row), _number(path, row, column)
        if not math.isclose(found, said, rel_tol=tolerance, abs_tol=tolerance):
            inputs = ", ".join(f"{k} {v}" for k, v in row.items() if k != column)
            raise StoreError(f"{measure.file}: says {said:.10g}, and NumPy gives {found:.10g} ({inputs})", _REMEDY)
    wanted = matching_rows(path, measure.where)
    if not wanted:
        raise NotRun(f"{path.name} has no such row")
    if len(rows) == len(wanted):
        raise StoreError(f"{measure.file}: has no row beside the published ones to compare with", _REMEDY)
    values = [compute(row) for row in wanted]
    return Reading(min(values) if measure.statistic == "min" else max(values), (str(measure.file),))


def _number(path: Path, row: Row, column: str) -> float:
    try:
        return float(row[column])
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path}: column '{column}' holds no number: {error}", _REMEDY) from error


def logistic_gradient(results: Path, measure: MeasureSettings) -> Reading:
    """Derivative of the summed logistic function, s(x) (1 - s(x)), at column ``x``, against column ``gradient``.

    Compared to float32's resolution: 3e-7 allows a few units in the last place of values up to 1/4.
    """

    def compute(row: Row) -> float:
        s = 1 / (1 + math.exp(-float(row["x"])))
        return s * (1 - s)

    return _recompute(results, measure, "gradient", compute, 3e-7)


def device_sums(results: Path, measure: MeasureSettings) -> Reading:
    """Sum of column ``inputs``, numbers with spaces between them, against column ``total``, one row a device."""
    return _recompute(results, measure, "total", lambda row: sum(map(float, row["inputs"].split())), 1e-6)


def same_density(results: Path, measure: MeasureSettings) -> Reading:
    """Log density of independent normals, in nats: ``values`` with ``loc`` and ``scale``, against column ``log_density``."""

    def compute(row: Row) -> float:
        values, loc, scale = (np.array(row[name].split(), np.float64) for name in ("values", "loc", "scale"))
        return float((-0.5 * ((values - loc) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)).sum())

    return _recompute(results, measure, "log_density", compute, 1e-6)


def equation_counts(results: Path, measure: MeasureSettings) -> Reading:
    """Largest over smallest number of equations of the programs whose text is stored, of one ``contender``.

    An equation is a line of the text that assigns. Where the table has a program's count, the text must have as many.
    """
    path = results / str(measure.file)
    programs = path.with_name(f"{path.stem}-programs.json")
    if not path.exists() or not programs.exists():
        raise NotRun(f"{measure.file} is not there")
    check_receipt(results, programs)
    texts = read_json(programs).get(str(measure.where.get("contender")), {})
    counts = {size: text.count(" = ") for size, text in texts.items()}
    if len(counts) < 2:
        raise StoreError(f"{programs}: fewer than two programs to compare", _REMEDY)
    for row in matching_rows(path, measure.where):
        if row["n"] in counts and row["equations"] and float(row["equations"]) != counts[row["n"]]:
            raise StoreError(
                f"{measure.file}: says {row['equations']} equations at n {row['n']}, and the program has {counts[row['n']]}",
                _REMEDY,
            )
    return Reading(max(counts.values()) / min(counts.values()), (str(measure.file),))


def hidden_markov(results: Path, measure: MeasureSettings) -> Reading:
    """Log densities of the published hidden Markov model at the latents of a row, against column ``value``.

    Column ``quantity`` says which: ``log_likelihood_first`` of the 70 processes, ``log_likelihood_all``,
    ``derivative_signal`` of the latter, or ``log_prior_`` of a parameter on the unconstrained scale that PyMC samples.
    Who evaluated it, column ``by``, did so at a point too that was drawn in the run, by the seed that stands in its row.
    """

    def compute(row: Row) -> float:
        latents = _latents(str(measure.file), row)
        try:
            # By the texts of the row, which several numbers of a claim are read beside.
            return _of_published_processes(row["quantity"], *(row[name] for name in latents._fields))
        except KeyError as error:
            raise StoreError(f"{measure.file}: nothing is known of the quantity {error}", _REMEDY) from error

    found = _recompute(results, measure, "value", compute, 1e-9)
    _check_drawn(results / str(measure.file), measure)
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
        raise StoreError(f"{file}: a row has no latents to compute it from: {error!r}", _REMEDY) from error


def _check_drawn(path: Path, measure: MeasureSettings) -> None:
    """Hold the points that have a seed to it, and the seeds, nanoseconds of the clock, to the time of the run.

    Raises:
        StoreError: a point or its seed is another, or who evaluated what is asked for did so at no drawn point.
    """
    wanted = matching_rows(path, measure.where)[0]
    beside = {name: wanted.get(name, "") for name in ("quantity", "by")}
    if not any(row.get("seed") for row in matching_rows(path, beside)):
        what = f"{wanted['quantity']} by {wanted.get('by', '')}"
        raise StoreError(f"{measure.file}: {what} is at no point that was drawn in the run", _REMEDY)
    for row in matching_rows(path, {}):
        if not row["seed"]:
            continue
        try:
            seed = int(row["seed"])
            written = datetime.strptime(row["measured_at"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
        except (KeyError, ValueError) as error:
            raise StoreError(f"{measure.file}: a drawn point without seed or time: {error!r}", _REMEDY) from error
        if not -60 < written - seed / 1e9 < _LONGEST_S:
            raise StoreError(
                f"{measure.file}: seed {seed} was not drawn in the run that ended at {row['measured_at']}", _REMEDY
            )
        drawn, said = (np.hstack([np.ravel(each) for each in z]) for z in (_draw(seed), _latents(str(path), row)))
        if not np.allclose(drawn, said, rtol=1e-12, atol=0):
            raise StoreError(f"{measure.file}: case {row['case']} is not the point of seed {seed}", _REMEDY)


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
