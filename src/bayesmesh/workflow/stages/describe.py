"""describe: say in words what an experiment would sample: its predictors, groups, parameters and priors, and what the prior says of the outcome."""

from __future__ import annotations

import argparse
import math
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.analyses._outcome import Outcome, class_names, find_outcome
from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.effects.columns import Column, Columns
from bayesmesh.config.user_code import explaining
from bayesmesh.models._latents import align_local
from bayesmesh.models._predictive import class_probabilities
from bayesmesh.models.base import Prior
from bayesmesh.sampling.checks.model import check_described
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.components import component_of, in_file_of
from bayesmesh.workflow.jobs import Job, component_sources
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.stages import fetch, shard
from bayesmesh.workflow.stages.inputs import bind

NUM_DRAWS, MOST_ROWS = 200, 250
"""Draws of the prior, and rows whose outcomes are simulated from each."""

_FAST_TO_COMPILE = {"xla_backend_optimization_level": 0}
"""Options of a program that runs once, for a moment."""

MOST_NAMED = 8
_WIDTH = 110
_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


def run(arguments: argparse.Namespace) -> int:
    """Print the description, and return the exit code.

    Raises:
        UserError: the configuration, the data or the model is not valid, as the stages would say.
    """
    name = arguments.experiment
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(asked=[name])
        job = plan.job("compile", name)
        configure_jax(job.compute)
        with explaining(component_sources(job)), in_file_of(job):
            if not (job.data_layout.shards / "zarr.json").exists() or job.data.source in ("table", "arrays"):
                job = _read(plan, name, Path(folder))
            # All of it, before a line is printed: priors are checked on the way.
            print("\n".join([*describe(bind(job, component_of(job, "model")), job.experiment)]))
    return 0


def _read(plan: Plan, name: str, folder: Path) -> Job:
    """Fetch and shard the data of an experiment into a folder, and return its job of `compile` there."""
    jobs = [Job.model_validate({**plan.job(stage, name).model_dump(), "results": folder}) for stage in ("fetch", "shard", "compile")]  # fmt: skip
    for stage, job in zip((fetch, shard), jobs, strict=False):
        stage.run(job, Ledger(folder / f"{job.name}.json", job.name), component_of(job, "source"))
    return jobs[-1]


def describe(bound: BoundModel, name: str) -> Iterator[str]:
    """Yield the lines of the description.

    Args:
        bound: model and data.
        name: name of the experiment.
    """
    model, columns, described = bound.model, Columns(bound), check_described(bound.model)
    outcome = find_outcome(model, bound.shards)
    formula = str(getattr(model.options, "formula", ""))
    yield f"Experiment {name}: {bound.shards.num_rows:,} training rows, model {type(model).__name__}"
    yield from _item("Formula", formula)
    if columns.outcome:
        yield from _item("Outcome", f"{columns.outcome}: {_column(columns[columns.outcome], '')}")
    for fact, text in described.facts.items():
        yield from _item(fact, text.replace("; ", "\n"))
    contrasts = getattr(model.options, "contrasts", {})
    lines = (f"{each}: {_column(columns[each], contrasts.get(each, 'treatment'))}" for each in columns.predictors)
    yield from _item("Predictors", "\n".join(lines))
    yield from _item(
        "Groups", "\n".join(f"{each}: {_group(columns[each])}" for each in columns.groups if each in columns.used)
    )
    prior = model.prior(bound.data_spec)
    simulated = _simulate(bound, prior) if model.has_predictions and model.has_proper_prior else None
    shapes = simulated.shapes if simulated is not None else jax.eval_shape(prior.sample, seed=jax.random.key(0))
    yield from _item("Parameters", "\n".join(_latents(model.axes(), shapes)))
    why = "not simulated: the prior is improper, or the model predicts no outcome"
    yield from _item("Prior outcome", why if simulated is None else "\n".join(_prior_outcomes(simulated, outcome)))
    yield from _item("Remarks", "\n".join(described.warnings))


def _item(name: str, text: str) -> Iterator[str]:
    """Yield a heading with the lines of its text; nothing for an empty one."""
    lead = name
    for line in text.splitlines():
        for part in textwrap.wrap(line, _WIDTH, subsequent_indent="  ", break_long_words=False) or [""]:
            yield f"{lead:<15} {part}"
            lead = ""


def _column(column: Column, contrasts: str) -> str:
    """Return the type of a column with its levels, or its mean and range, in the unit of the table."""
    if column.levels is None:
        mean, low, high = (value * column.scale + column.shift for value in (column.mean, column.low, column.high))
        unit = ", standardised" if column.scale != 1 else ""
        return f"number{unit}, mean {mean:.4g}, sd {column.sd * column.scale:.4g}, from {low:.4g} to {high:.4g}"
    named = [f"{level} ({count:,})" for level, count in zip(column.levels, column.counts, strict=False)]
    named[0] += ", the first and reference" if contrasts == "treatment" else ""
    return f"category of {len(column.levels):,} levels with their rows: {_named(named)}"


def _group(column: Column) -> str:
    counts = column.counts[column.counts > 0]
    least, most = counts.min(), counts.max()
    sizes = (
        f"{least:,} rows each" if least == most else f"{least:,} to {most:,} rows each, median {np.median(counts):,.0f}"
    )
    empty = len(column.counts) - len(counts)
    levels = f"{len(column.counts):,} level{'s' if len(column.counts) > 1 else ''}"
    return f"{levels}, {sizes}" + (f"; {empty:,} without rows" if empty else "")


def _named(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_NAMED:,} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def _latents(axes: Mapping[str, Sequence[object]], shapes: Mapping[str, jax.ShapeDtypeStruct]) -> Iterator[str]:
    """Yield a line for each latent: its size, and the names along its axes."""
    for name, about in sorted(shapes.items()):
        labels = [list(map(str, axis.labels)) for axis in axes.get(name, ()) if getattr(axis, "labels", None)]  # type: ignore[attr-defined]
        size = " x ".join(f"{length:,}" for length in about.shape) or "1"
        yield f"{name} ({size})" + "".join(f"; {_named(each)}" for each in labels)


class _Simulated(NamedTuple):
    """Outcomes of the prior and those observed, at the same rows.

    Attributes:
        made: (draw, ...), simulated.
        observed: (...).
        is_class: whether they are codes of classes.
        shapes: latent -> shape of one draw.
    """

    made: np.ndarray
    observed: np.ndarray
    is_class: bool
    shapes: Mapping[str, jax.ShapeDtypeStruct]


def _simulate(bound: BoundModel, prior: Prior) -> _Simulated:
    model, spec, shards = bound.model, bound.data_spec, bound.shards
    chosen = np.unique(np.linspace(0, shards.num_rows - 1, min(MOST_ROWS, shards.num_rows)).astype(np.int64))
    stored = shards.read_chosen(chosen)
    rows = {k: jnp.asarray(v, spec.dtype if v.dtype.kind == "f" else None) for k, v in stored.items()}
    entries, traced = spec.entries_of(chosen), list[tuple[bool, dict[str, jax.ShapeDtypeStruct]]]()
    # Its programs compile in a fraction of the time of the default's.
    base = jax.random.key(1, impl="unsafe_rbg")

    def of_draw(number: jax.Array) -> jax.Array:
        key_latents, key_outcomes = jax.random.split(jax.random.fold_in(base, number))
        latents = prior.sample(seed=key_latents)
        predictive = model.predict(align_local(model, latents, entries), rows)
        shapes = {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in latents.items()}
        traced.append((class_probabilities(predictive) is not None, shapes))
        return predictive.sample(seed=key_outcomes)

    simulate = jax.jit(lambda numbers: jax.lax.map(of_draw, numbers), compiler_options=_FAST_TO_COMPILE)
    made = np.asarray(simulate(jnp.arange(NUM_DRAWS))).reshape(NUM_DRAWS, -1)
    return _Simulated(made, np.asarray(model.outcome(rows)).reshape(-1), *traced[0])


def _prior_outcomes(simulated: _Simulated, outcome: Outcome) -> Iterator[str]:
    """Yield a table of outcomes simulated from the prior, and of those observed."""
    made, observed, is_class, _ = simulated
    yield f"{NUM_DRAWS} draws of the prior at {len(observed):,} rows, and the data"
    if is_class:
        number = int(max(made.max(), observed.max())) + 1
        names = class_names(outcome, number) if number > 2 else outcome.levels or ("0", "1")
        yield f"{'share of':<20}{'prior, median':>15}{'5%':>9}{'95%':>9}{'data':>9}"
        for code, name in enumerate(names[:20]):
            low, middle, high = np.quantile((made == code).mean(axis=1), (0.05, 0.5, 0.95))
            yield f"{name[:20]:<20}{middle:>15.3f}{low:>9.3f}{high:>9.3f}{(observed == code).mean():>9.3f}"
        return
    made, observed = (np.asarray(x, np.float64) * outcome.scale + outcome.mean for x in (made, observed))
    finite = np.isfinite(made)
    yield f"{'quantile':<10}" + "".join(f"{share:>12.0%}" for share in _SHARES)
    for name, values in (("prior", made[finite]), ("data", observed)):
        quantiles = np.quantile(values, _SHARES) if values.size else [math.nan] * len(_SHARES)
        yield f"{name:<10}" + "".join(f"{value:>12.4g}" for value in quantiles)
    if not finite.all():
        yield f"{1 - finite.mean():.1%} of the outcomes of the prior are infinite or not a number"
