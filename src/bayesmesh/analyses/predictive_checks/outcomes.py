"""Simulate outcomes of all rows from draws of the posterior, in blocks, and compare test quantities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses._draw_blocks import CHUNK_CELLS, DrawBlocks, PriorDraws, RowsOfBlock, outcomes_of
from bayesmesh.analyses.base import BoundModel, asking_model, unsuitable
from bayesmesh.analyses.figures.documents import render_csv
from bayesmesh.analyses.predictive_checks.columns import Term, Variable, bin_columns, list_terms, propose
from bayesmesh.analyses.predictive_checks.quantities import (
    COUNTS,
    LEVEL,
    LOG,
    MOST_CLASSES,
    NUM_COMPLETED,
    OF_CLASS,
    Bin,
    Kind,
    add_sums,
    kind_of,
    p_value,
    quantities_of,
    sum_powers,
)
from bayesmesh.analyses.predictive_checks.residuals import Residuals
from bayesmesh.data.base import Variable as DataVariable
from bayesmesh.data.shards import Shards
from bayesmesh.files import atomic_folder, write_text
from bayesmesh.models.base import Latents, Model, Predictive, Rows
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.posterior.reader import CHUNK_DRAWS, Posterior


def unit_of_outcome(bound: BoundModel) -> DataVariable:
    """Return the column that the model names as its outcome, with its unit; that of the data if it names none."""
    name = bound.model.outcome_field()
    found = None if name is None else Shards(bound.shards.path).variables.get(name)
    return found or DataVariable("number")


def in_unit(unit: DataVariable, outcome: np.ndarray) -> np.ndarray:
    """Return outcomes in the unit of the table; those that are not standardised keep their dtype.

    >>> tall = DataVariable("number", mean=10.0, scale=2.0)
    >>> in_unit(tall, np.array([-1.0, 0.5])), in_unit(DataVariable("number"), np.array([3], np.int32)).dtype.name
    (array([ 8., 11.]), 'int32')
    """
    is_plain = (unit.mean, unit.scale) == (0.0, 1.0)
    return outcome if is_plain else unit.mean + unit.scale * outcome.astype(np.float64)


class Survey(NamedTuple):
    """The observed outcomes of all rows, and evenly spaced rows.

    Attributes:
        dtype: of the outcome.
        smallest, largest: observed outcomes.
        centre: mean of the outcomes.
        scale: their standard deviation; 1 if they are all equal.
        is_finite: whether all outcomes are finite.
        rows: evenly spaced rows, as many as a block holds; unless they are all rows, numbered from the number of all rows,
            so that they are simulated with random numbers of their own.
    """

    dtype: np.dtype
    smallest: float
    largest: float
    centre: float
    scale: float
    is_finite: bool
    rows: RowsOfBlock


def survey_rows(blocks: Iterable[RowsOfBlock], num_rows: int, block_rows: int) -> Survey:
    """Return what all rows tell, from one pass over blocks of them.

    Args:
        blocks: all rows.
        num_rows: number of all rows.
        block_rows: rows of a block.
    """
    stride = math.ceil(num_rows / block_rows)
    parts: list[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]] = []
    ends: list[tuple[float, float]] = []
    moments: list[tuple[int, float, float]] = []
    for block in blocks:
        chosen = np.flatnonzero((block.start + np.arange(block.num_rows)) % stride == 0)
        parts.append(({k: v[chosen] for k, v in block.rows.items()}, block.entries[chosen], block.outcome[chosen]))
        values = block.outcome.astype(np.float64)
        ends.append((float(values.min()), float(values.max())))
        moments.append((values.size, float(values.mean()), float(values.var())))
    size = min(block_rows, num_rows)
    outcome = np.concatenate([part[2] for part in parts])
    # One shape means one compilation.
    padded = np.minimum(np.arange(size), len(outcome) - 1)
    rows = {k: np.concatenate([part[0][k] for part in parts])[padded] for k in parts[0][0]}
    entries = np.concatenate([part[1] for part in parts])[padded]
    counts, means, variances = np.array(moments).T
    centre = float(np.average(means, weights=counts))
    variance = float(np.average(variances + np.square(means - centre), weights=counts))
    smallest, largest = min(low for low, _ in ends), max(high for _, high in ends)
    return Survey(
        outcome.dtype, smallest, largest, centre, math.sqrt(variance) or 1.0,
        bool(np.isfinite([*means, *variances]).all()),
        RowsOfBlock(0 if stride == 1 else num_rows, len(outcome), rows, entries, outcome),
    )  # fmt: skip


KEY = "predictive_checks"

COLUMNS = ("quantity", "observed", "simulated_mean", "low", "high", "p_value", "largest_for", "proposed")
"""Columns of ``checks.csv``; `low` and `high` hold 95% of the simulated values; `largest_for` is a column of the data, or a
term that the formula may lack; `proposed` is the term to add, or `LOG` or `COUNTS`."""

SKEWED = 0.12
"""Skewness of the middle 80% of positive outcomes from which logs are proposed; a few outliers do not change it."""

KEPT_CELLS = 2**21
"""Limit on the simulated outcomes of a block of rows in memory at a time."""

LARGEST = 1e60
"""Bound on the absolute value of outcomes simulated from the posterior, which may overflow if tails are heavy."""

_MOST_REPEATS = 64

FIRST_SETS, MOST_SETS = 500, 3500
"""Simulated sets of outcomes, at least: those that find what may differ, and enough for p values of all quantities of a number."""

SUGGESTIVE = 0.01
"""A p value of one of the first sets' quantities from which more sets are simulated."""


def check_outcomes(bound: BoundModel, posterior: Posterior, max_draws: int, files: Mapping[str, Path]) -> str:
    """Write the quantities of observed and simulated outcomes, and return those that differ as text.

    Args:
        bound: model and data.
        posterior: the draws.
        max_draws: draws to simulate from.
        files: paths of the outputs.

    Raises:
        ConfigError: the model does not predict.
    """
    jax.config.update("jax_enable_x64", True)
    model, _, shards = bound
    total = posterior.num_chains * posterior.num_draws
    draws = DrawBlocks(KEY, model, bound.data_spec, posterior, stride=math.ceil(total / max_draws))
    shape = _outcome_shape(bound)
    block_rows = max(1, CHUNK_CELLS // (min(CHUNK_DRAWS, draws.num_draws) * math.prod(shape)))
    columns: list[Variable] = []
    outcome, num_completed = np.zeros(0), 0
    if not shape:
        blocks = [(block.outcome, number) for block, number in _completed_blocks(bound, draws, block_rows)]
        outcome, num_completed = np.concatenate([each for each, _ in blocks]), sum(number for _, number in blocks)
        columns = bin_columns(shards, outcome)
        if num_completed:
            # How an outcome is censored follows from the outcome, and explains nothing of it.
            options = (getattr(model.options, key, None) for key in ("censored", "interval_end"))
            of_outcome = {model.outcome_field(), *options}
            columns = [each for each in columns if each.name not in of_outcome]
        block_rows = max(1, min(block_rows, KEPT_CELLS // max(draws.num_draws, MOST_SETS)))
    formula = str(getattr(model.options, "formula", ""))
    given = bound, draws, block_rows, None if shape else columns, list_terms(columns, formula)
    simulator = _simulate(*given, FIRST_SETS)
    values, largest_for, upper = simulator.quantities()
    if min(p_value(v[1:], v[0], is_upper=k in upper) for k, v in values.items()) < SUGGESTIVE:
        # Only more sets tell a small p value from one below the level of a quantity.
        simulator = _simulate(*given, math.ceil(2.5 * len(values) / LEVEL))
        values, largest_for, upper = simulator.quantities()
    proposed = propose_all(values, largest_for, columns, formula, outcome)
    observed, simulated = {k: float(v[0]) for k, v in values.items()}, {k: v[1:] for k, v in values.items()}
    p_values = {k: p_value(simulated[k], observed[k], is_upper=k in upper) for k in values}
    rows = [
        [*_row(k, observed[k], simulated[k]), p_values[k], largest_for.get(k, ""), proposed.get(k, "")] for k in values
    ]
    with atomic_folder(files["quantities.zarr"]) as partial:
        group = open_group(partial, "w")
        group.attrs[NUM_COMPLETED] = num_completed
        write_array(group, "simulated", np.stack([simulated[name] for name in observed], axis=1), ("draw", "quantity"))
    write_text(files["bins.csv"], render_csv(Bin._fields, simulator.bins()))
    write_text(files["checks.csv"], render_csv(COLUMNS, rows))
    differing = [name for name, value in p_values.items() if value < LEVEL / len(rows)]
    return f"{len(differing)} of {len(rows)} quantities differ{': ' if differing else ''}{', '.join(differing)}"


def propose_all(
    values: Collection[str],
    largest_for: Mapping[str, str],
    columns: Sequence[Variable],
    formula: str,
    outcome: np.ndarray,
) -> dict[str, str]:
    """Return quantity -> `proposed`, whether or not it differs.

    Args:
        values: names of the quantities.
        largest_for: quantity -> column or term.
        columns: of the data.
        formula: of the model; empty if it has none.
        outcome: observed.
    """
    by_name = {each.name: each for each in columns}
    found = {"residuals by term": largest_for.get("residuals by term", "")}
    if column := by_name.get(largest_for.get("residuals by column", "")):
        found["residuals by column"] = propose(column, formula)
    if "skewness" in values and outcome.size:
        is_count = outcome.min() in (0, 1) and (outcome == np.rint(outcome)).all()
        found["skewness"] = COUNTS if is_count else LOG if _is_log_less_skewed(outcome) else ""
    return found


def check_prior(bound: BoundModel, num_draws: int, path: Path) -> str:
    """Write quantities of observed outcomes and of those simulated from the prior, and return those that differ as text.

    Args:
        bound: model and data.
        num_draws: draws of the prior; 0 for a table without rows.
        path: of the table.
    """
    values: dict[str, np.ndarray] = {}
    if num_draws:
        draws = PriorDraws(KEY, bound.model, bound.data_spec, num_draws)
        width = math.prod(_outcome_shape(bound))
        block_rows = max(1, CHUNK_CELLS // (min(CHUNK_DRAWS, num_draws) * width))
        values, _, _ = _simulate(bound, draws, block_rows, None, [], MOST_SETS).quantities()
    rows = []
    for name, (observed, *found) in values.items():
        # A prior may be so wide that outcomes overflow.
        simulated = np.nan_to_num(found, nan=np.inf, posinf=np.inf, neginf=-np.inf)
        low, middle, high = np.quantile(simulated, (0.025, 0.5, 0.975), method="nearest")
        rows.append([name, observed, middle, low, high, p_value(simulated, observed), "", ""])
    write_text(path, render_csv(COLUMNS, rows))
    differing = [row[0] for row in rows if row[5] < LEVEL / len(rows)]
    return f"; of the prior {len(differing)} of {len(rows)} differ" if rows else ""


def simulate_once(predictive: Predictive, outcome: jax.Array) -> jax.Array:
    """Return simulated outcomes, after comparing their shape with that of the observed ones.

    Raises:
        ConfigError: the shapes differ.
    """
    simulated = jnp.asarray(predictive.sample(seed=jax.random.key(0)))
    if simulated.shape != outcome.shape:
        raise unsuitable(KEY, f"simulated outcomes have shape {simulated.shape}, and the observed ones {outcome.shape}")
    return simulated


def _outcome_shape(bound: BoundModel) -> tuple[int, ...]:
    with asking_model(KEY, bound.model, list(bound.shards.fields)):
        return tuple(jax.eval_shape(bound.model.outcome, bound.shards.read_rows(0, 1)).shape[1:])


def _num_classes(predictive: Predictive) -> int:
    """Return the number of classes of an outcome, ordered or not; 0 if it is a number."""
    if isinstance(predictive, tfp.distributions.OrderedLogistic):
        return int(predictive.cutpoints.shape[-1]) + 1
    return int(predictive.probs_parameter().shape[-1]) if isinstance(predictive, tfp.distributions.Categorical) else 0


def _row(name: str, observed: float, simulated: np.ndarray) -> list[object]:
    low, high = np.quantile(simulated, (0.025, 0.975))
    return [name, observed, float(simulated.mean()), float(low), float(high)]


def _is_log_less_skewed(outcome: np.ndarray) -> bool:
    """Return whether positive outcomes differ by factors and are skewed in their middle, and their logs much less.

    >>> tail = np.linspace(-2, 2, 50)
    >>> _is_log_less_skewed(np.exp(tail)), _is_log_less_skewed(5 + tail), _is_log_less_skewed(np.append(5 + tail, 90))
    (True, False, False)
    """
    if outcome.min() <= 0:
        return False
    low, middle, high = np.quantile([outcome, np.log(outcome)], (0.1, 0.5, 0.9), axis=1)
    skewness, of_logs = (low + high - 2 * middle) / np.maximum(high - low, 1e-300)
    return bool(high[0] > 2 * low[0] and skewness > max(SKEWED, abs(of_logs) / 1.5))


def _completed_blocks(bound: BoundModel, draws: DrawBlocks, block_rows: int) -> Iterator[tuple[RowsOfBlock, int]]:
    """Yield all rows, with outcomes in the unit of the table, and how many of them are censored.

    Censored outcomes are drawn given what is known of them, at the first draw of the posterior: with these, the data are like
    simulated ones (Gelman et al. 2005, doi:10.1111/j.0006-341X.2005.031010.x). At draws of the prior, they stay as they are.
    """
    model, shards, unit, first = bound.model, bound.shards, unit_of_outcome(bound), draws.first_draw()

    def complete(rows: Rows, entries: jax.Array, start: jax.Array) -> jax.Array | None:
        if isinstance(draws, PriorDraws):
            return None
        return model.completed_outcome(draws.align(first, entries), rows, jax.random.fold_in(jax.random.key(2), start))

    program = jax.jit(complete)
    for block in draws.blocks(shards.read_rows, shards.num_rows, block_rows):
        found, outcome, number = program(block.rows, block.entries, np.uint32(block.start)), block.outcome, 0
        if found is not None:
            drawn, known = (np.asarray(each)[: block.num_rows] for each in (found, outcomes_of(model, block.rows)))
            outcome, number = np.where(drawn != known, drawn, outcome), int((drawn != known).sum())
        yield block._replace(outcome=in_unit(unit, outcome)), number


def _simulate(
    bound: BoundModel,
    draws: DrawBlocks,
    block_rows: int,
    columns: list[Variable] | None,
    terms: list[Term],
    num_sets: int,
) -> _Simulator:
    """Return the sums over all rows of observed and simulated outcomes.

    Args:
        bound: model and data.
        draws: of its posterior or prior.
        block_rows: rows of a block.
        columns: bins of the data's columns; None without residuals.
        terms: that the model may lack.
        num_sets: number of simulated sets, unless there are more draws.

    Raises:
        ConfigError: outcomes are not finite.
    """
    shards, unit = bound.shards, unit_of_outcome(bound)

    def blocks() -> Iterator[RowsOfBlock]:
        return (block for block, _ in _completed_blocks(bound, draws, block_rows))

    survey = survey_rows(blocks(), shards.num_rows, block_rows)
    if not survey.is_finite:
        raise unsuitable(KEY, f"model {type(bound.model).__name__} has outcomes that are not finite")
    simulator = _Simulator(bound.model, draws, survey, columns, terms, unit, num_sets)
    if all(map(simulator.add, blocks())):
        return simulator
    simulator = _Simulator(bound.model, draws, survey, columns, terms, unit, num_sets, may_be_binary=False)
    for block in blocks():
        simulator.add(block)
    return simulator


class _Simulator:
    """Adds up sums over rows of simulated and of observed outcomes.

    Args:
        model: the model.
        draws: of its posterior.
        survey: of all rows.
        columns: bins of the data's columns; None if an outcome is more than one number.
        terms: that the model may lack.
        unit: of the observed outcomes, into which simulated ones are converted.
        num_sets: see `_simulate`.
        may_be_binary: whether outcomes of which only 0 and 1 are observed are taken for binary.
    """

    def __init__(
        self,
        model: Model,
        draws: DrawBlocks,
        survey: Survey,
        columns: list[Variable] | None,
        terms: list[Term],
        unit: DataVariable,
        num_sets: int,
        *,
        may_be_binary: bool = True,
    ) -> None:
        self._model, self._draws, self._unit = model, draws, unit
        self._is_of_prior = isinstance(draws, PriorDraws)
        self._program = jax.jit(self._of_chunk)
        self._centre, self._scale = survey.centre, survey.scale
        self._sums: list[np.ndarray] = []
        # The predictive distribution of two rows at the first draw.
        some = {k: jnp.asarray(v[:2]) for k, v in survey.rows.rows.items()}
        with asking_model(KEY, model, list(some)):
            predictive = model.predict(draws.align(draws.first_draw(), survey.rows.entries[:2]), some)
        self._num_classes = _num_classes(predictive)
        self._kind: Kind = kind_of(survey.dtype, survey.smallest, survey.largest, is_class=self._num_classes > 0)
        if isinstance(predictive, tfp.distributions.Bernoulli):
            self._kind = "binary"
        elif self._kind == "binary" and not may_be_binary:
            self._kind = "whole"
        self._num_repeats = min(_MOST_REPEATS, math.ceil(num_sets / self._draws.num_draws))
        self._residuals: Residuals | None = None
        if columns is not None:
            made = np.concatenate([*self._made(survey.rows, num_repeats=1)])
            self._residuals = Residuals(self._kind, columns, made, self._num_classes, terms)

    def _of_chunk(self, latents: Latents, number: jax.Array, rows: Rows, entries: jax.Array) -> jax.Array:
        """Return simulated outcomes, (draw, row, ...)."""

        def of_draw(draw: Latents, key: jax.Array) -> jax.Array:
            return jnp.asarray(self._model.predict(self._draws.align(draw, entries), rows).sample(seed=key))

        keys = jax.random.split(jax.random.fold_in(jax.random.key(1), number), len(next(iter(latents.values()))))
        return jax.vmap(of_draw)(latents, keys)

    def _made(self, block: RowsOfBlock, num_repeats: int) -> Iterator[np.ndarray]:
        """Yield simulated outcomes of a block, (draw, row that counts, ...), by chunks of draws.

        Raises:
            ConfigError: an outcome that is simulated from the posterior is not a number.
        """
        num_draws = self._draws.num_draws
        for repeat, (first, count, latents) in itertools.product(range(num_repeats), self._draws.chunks()):
            number = np.uint32(((block.start * num_repeats + repeat) * (num_draws + 1) + first) % 2**32)
            made = np.asarray(self._program(latents, number, block.rows, block.entries))[:count, : block.num_rows]
            made = in_unit(self._unit, made)
            if made.dtype.kind == "f" and not self._is_of_prior:
                if np.isnan(made).any():
                    name = type(self._model).__name__
                    raise unsuitable(KEY, f"model {name} simulates outcomes that are not numbers")
                # Fourth powers of outcomes must be finite.
                made = np.clip(made.astype(np.float64), -LARGEST, LARGEST)
            yield made

    def add(self, block: RowsOfBlock) -> bool:
        """Add the rows of a block; return False, and add nothing, if outcomes taken for binary are not."""
        found, kept = [self._sum(block.outcome.reshape(1, -1))], []
        for made in self._made(block, self._num_repeats):
            if self._kind == "binary" and made.max() > 1:
                return False
            found.append(self._sum(made.reshape(len(made), -1)))
            if self._residuals is not None:
                kept.append(made)
        if self._residuals is not None:
            self._residuals.add(block.outcome, np.concatenate(kept), block.start)
        sums = np.concatenate(found)
        together = np.add if self._kind == "class" else add_sums
        self._sums = [together(self._sums[0], sums)] if self._sums else [sums]
        return True

    def _sum(self, values: np.ndarray) -> np.ndarray:
        if self._kind == "class":
            return np.stack([(values == code).sum(axis=1) for code in range(self._num_classes)], axis=1).astype(float)
        return sum_powers(values.astype(np.float64), self._centre, self._scale)

    def bins(self) -> list[Bin]:
        """Return predicted and observed means by bin."""
        return [] if self._residuals is None else self._residuals.bins()

    def quantities(self) -> tuple[dict[str, np.ndarray], dict[str, str], set[str]]:
        """Return quantity -> (set,) observed and simulated values, columns of the largest, and one-sided quantities."""
        (sums,) = self._sums
        if self._kind == "class":
            # If there are very many classes, the rarest are left out.
            shares = sums / sums.sum(axis=1, keepdims=True)
            shown = np.sort(np.argsort(-shares[0], kind="stable")[:MOST_CLASSES])
            values = {f"{OF_CLASS}{code}": shares[:, code] for code in shown}
        else:
            values = quantities_of(sums, self._kind, self._centre, self._scale)
        if self._residuals is None:
            return values, {}, set()
        of_residuals, largest_for = self._residuals.quantities()
        return values | of_residuals, largest_for, set(of_residuals)
