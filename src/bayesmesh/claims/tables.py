"""Witnesses of benchmark tables: every row is computed again, with NumPy, from the inputs that stand in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bayesmesh.claims.reading import NotRun, Reading, matching_rows
from bayesmesh.errors import StoreError
from bayesmesh.experiment.claims import MeasureSettings
from bayesmesh.store.files import read_json
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
    """Log densities of the published hidden Markov model at columns ``signal`` and ``noise``, against column ``value``.

    Column ``quantity`` says which: ``log_likelihood_first`` of the 70 processes, ``log_likelihood_all``,
    ``derivative_signal`` of the latter, or ``log_prior_`` of a parameter on the unconstrained scale that PyMC samples.
    """
    observed = _published_processes()

    def compute(row: Row) -> float:
        signal, noise, quantity = float(row["signal"]), float(row["noise"]), row["quantity"]
        if quantity in _LOG_PRIORS:
            return _LOG_PRIORS[quantity](signal, noise)
        if quantity == "log_likelihood_first":
            return _forward(observed[:1], signal, noise)
        if quantity in ("log_likelihood", "log_likelihood_all"):
            return _forward(observed, signal, noise)
        if quantity == "derivative_signal":
            step = 1e-5
            return (_forward(observed, signal + step, noise) - _forward(observed, signal - step, noise)) / (2 * step)
        raise StoreError(f"{measure.file}: nothing is known of the quantity '{quantity}'", _REMEDY)

    return _recompute(results, measure, "value", compute, 1e-6)


_LOG_NORMAL = 0.5 * math.log(2 * math.pi)
_LOG_SIMPLEX = math.log(2) + math.log(3) - 3 * math.log(3)
"""Log density of Dirichlet(1, 1, 1) at equal probabilities, with the volume of PyMC's map from the plane to the simplex."""

_LOG_PRIORS: Mapping[str, Callable[[float, float], float]] = {
    "log_prior_signal": lambda signal, _: -0.5 * signal**2 - _LOG_NORMAL,
    "log_prior_noise": lambda _, noise: math.log(2) - 0.5 * noise**2 - _LOG_NORMAL + math.log(noise),
    "log_prior_initial": lambda *_: _LOG_SIMPLEX,
    "log_prior_transition": lambda *_: 3 * _LOG_SIMPLEX,
}
_INITIAL = (0.9, 0.09, 0.01)
_TRANSITION = ((0.9, 0.09, 0.01), (0.1, 0.8, 0.1), (0.2, 0.1, 0.7))


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


def _forward(observed: np.ndarray, signal: float, noise: float) -> float:
    """Return the log-likelihood of processes, (processes, times), by the forward recursion in log scale, in nats."""
    means = (np.arange(3) + 1) * signal
    emission = -0.5 * ((observed[..., None] - means) / noise) ** 2 - math.log(noise) - 0.5 * math.log(2 * math.pi)
    log_state = np.log(_INITIAL) + emission[:, 0]
    for time in range(1, observed.shape[1]):
        joint = log_state[:, :, None] + np.log(_TRANSITION)
        most = joint.max(1)
        log_state = emission[:, time] + most + np.log(np.exp(joint - most[:, None]).sum(1))
    most = log_state.max(1)
    return float((most + np.log(np.exp(log_state - most[:, None]).sum(1))).sum())
