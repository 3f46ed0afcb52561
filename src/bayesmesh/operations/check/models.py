"""Find a model and a few rows of data for it, and check it, in the order that explains a mistake best."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.config.experiment import component_options
from bayesmesh.config.registry import component_path, list_components, load_component, resolve_component
from bayesmesh.config.settings import Settings
from bayesmesh.config.user_code import explaining
from bayesmesh.data.base import Dataset, DataSpec, FieldSpec, Source
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import prepare_rows
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Density, Position
from bayesmesh.models.base import Model
from bayesmesh.operations.check.calibration import FEWEST_DRAWS, calibrate, unlike_draws
from bayesmesh.operations.check.line import FAILS, LEFT_OUT, OK, Line, check_options, resolve, run_checks
from bayesmesh.sampling.checks.model import check_model, check_predictions
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS
from bayesmesh.sampling.density.prior_draws import Simulator
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.sizes import resolve_auto
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.plan import Plan

_NO_FIELD = "asks for '"
"""Part of the message that refuses a model which reads a missing field."""

MOST_ROWS = 61
"""Rows of the data, of which there are as few as that allows padding everywhere."""

NUM_POINTS = 64
"""Draws of the prior at which densities are computed."""

LEAST_FINITE = 0.9
"""Required share of prior draws with a finite log density and gradient."""

MOST_ERROR = 1e-5
"""Tolerance of a gradient, relative to the largest slope."""

SAME = 1e-9
"""Allowed relative difference of log densities and gradients with other tiles and devices."""

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 300, 200
MOST_R_HAT, MOST_DIVERGENT = 1.05, 0.02

NUM_DATASETS, FEW_ROWS, MOST_COORDINATES = 64, 8, 200
"""Of a calibration: datasets, rows of each, and coordinates beyond which it would take too long."""

LEAST_P = 1e-4

KERNEL = "nuts"
MOST_DEPTH = {"calibration": 6, "sampling": 8}
"""Check -> maximum number of doublings of a trajectory: of many posteriors at once, all wait for the longest."""


class Subject(NamedTuple):
    """A model and a few rows that it reads.

    Attributes:
        name: of the model, in the registry or ``module:attribute``.
        origin: where the rows come from, in words.
        path: source file of the model.
        model_class, options: of the model.
        spec: of the rows, in float64.
        rows: field -> (row, ...).
    """

    name: str
    origin: str
    path: Path
    model_class: type[Model]
    options: Settings
    spec: DataSpec
    rows: Mapping[str, np.ndarray]

    def first(self, num_rows: int) -> Subject:
        """Return the same subject with at most this many rows."""
        count = min(num_rows, self.spec.num_rows)
        counts = np.bincount(self.spec.entries_of(np.arange(count))).tolist() if self.spec.entry_counts else ()
        spec = dataclasses.replace(self.spec, num_rows=count, entry_counts=tuple(counts))
        return self._replace(spec=spec, rows={k: v[:count] for k, v in self.rows.items()})


def find_subject(model: str | None, experiment: str | None) -> Subject:
    """Return a model with data: those of the experiment; else of the first that uses the model; else built-in ones.

    Args:
        model: name of the model; that of the experiment when None.
        experiment: name of the experiment.

    Raises:
        ConfigError: an unknown name; options are missing; or no data fit the model.
    """
    plan = Plan(asked=filter(None, [experiment]))
    if experiment is None:
        experiment = next((n for n, e in sorted(plan.experiments.items()) if e.model.name == model), None)
    if experiment is None:
        assert model is not None  # the verb requires one of the two
        return _with_built_in_data(model)
    job = plan.job("compile", experiment)
    given = component_options("model", dict(job.model)) if model in (None, job.model.name) else {}
    name = model or job.model.name
    rows, about, origin = _rows_of(job)
    return _subject(name, given, rows, about, origin)


def _rows_of(job: Job) -> tuple[dict[str, np.ndarray], Dataset | Shards, str]:
    """Return rows of an experiment, the shards or the dataset to which they belong, and their origin in words.

    Without shards, data are read anew, unless they must be fetched.
    """
    origin = f"the first rows of experiment '{job.experiment}'"
    if (job.data_layout.shards / "zarr.json").exists():
        shards = Shards(job.data_layout.shards)
        return shards.read_rows(0, min(MOST_ROWS, shards.num_rows)), shards, origin
    source_class, options = component_of(job, "source")
    if source_class.fetch is not Source.fetch:
        name = job.experiment
        raise ConfigError(
            f"experiment '{name}': its data are not there",
            f"run `bayesmesh fetch --experiment {name}` and `bayesmesh shard --experiment {name}` first",
        )
    dataset: Dataset = source_class(options).read(Path())
    return {name: np.asarray(values[:]) for name, values in dataset.rows.items()}, dataset, origin


def _with_built_in_data(model: str) -> Subject:
    """Return the model with the first built-in source that has all fields it reads."""
    component_path("model", model)
    refusal, mistakes = "", list[tuple[str, ConfigError]]()
    for source in list_components("source"):
        source_class = load_component("source", source)
        if source_class.fetch is Source.fetch:
            dataset = source_class(resolve_component("source", source, {})[1]).read(Path())
            found = _subject(model, {}, dataset.rows, dataset, f"the first rows of source '{source}'")
            try:
                check_model(found.model_class, found.options, found.spec)
            except ConfigError as error:
                refusal = f"; with '{source}': {error.message}"
                if _NO_FIELD not in error.message:
                    mistakes.append((source, error))
                continue
            return found
    if mistakes:
        # The fields exist, so the model is wrong, or it is meant for other data.
        source, mistake = mistakes[0]
        raise ConfigError(
            f"with the built-in source '{source}': {mistake.message}",
            f"{mistake.remedy}; or give an experiment with other data: bayesmesh check {model} --experiment NAME",
        )
    raise ConfigError(
        f"model '{model}': no experiment uses it, and it reads none of the built-in data{refusal}",
        f"give an experiment with data that it reads: bayesmesh check {model} --experiment NAME",
    )


def _subject(
    name: str, given: Mapping[str, Any], rows: Mapping[str, np.ndarray], about: Dataset | Shards, origin: str
) -> Subject:
    model_class, options = resolve("model", name, given)
    if model_class.reads_whole(options):
        rows = {k: v[None, :MOST_ROWS] for k, v in rows.items()}
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    num_rows = len(next(iter(rows.values())))
    spec = DataSpec(num_rows, fields, about.constants, "float64", (), about.variables, about.labels, about.roles)
    spec, rows = prepare_rows(functools.partial(model_class.prepare, options), spec, rows)
    return Subject(name, origin, component_path("model", name), model_class, options, spec, rows).first(MOST_ROWS)


# -- the checks ----------------------------------------------------------------------------------------------------------


class Evaluated(NamedTuple):
    """A subject, its log density with all rows in one place, and draws of its prior.

    Attributes:
        points: (chain, ...) `NUM_POINTS` draws of the prior in unconstrained space.
        found: the log density there.
    """

    subject: Subject
    target: Target
    points: Position
    found: Density


def check(subject: Subject) -> Iterator[Line]:
    """Yield the outcome of every check; if the model cannot be evaluated at all, skip those that evaluate it."""
    yield check_options("options", type(subject.options), subject.path)
    try:
        with explaining([subject.path]):
            check_model(subject.model_class, subject.options, subject.spec)
            model = _evaluate(subject)
    except ConfigError as error:
        yield Line("shapes", FAILS, error.message, error.remedy)
        return
    yield Line("shapes", OK, "prior, log likelihood and summaries have the shapes and dtypes that programs need")
    yield from run_checks(CHECKS, model, subject.path)


def _target(subject: Subject, num_devices: int = 1, row_tile: int = 0) -> Target:
    spec = subject.spec
    layout = lay_out_rows(spec.num_rows, num_devices, row_tile or spec.num_rows, spec.entry_counts)
    return Target(subject.model_class(subject.options, spec), spec, layout)


def _log_density(target: Target, subject: Subject) -> Callable[[Position], Density]:
    data = {k: jnp.asarray(v) for k, v in target.lay_out(subject.rows).items()}
    return jax.jit(lambda position: target.bind(data).log_density(position))


def _evaluate(subject: Subject) -> Evaluated:
    target = _target(subject)
    keys = jax.random.split(jax.random.key(1), NUM_POINTS)
    points = jax.jit(jax.vmap(target.sample_prior))(keys)
    return Evaluated(subject, target, points, jax.device_get(_log_density(target, subject)(points)))


def _is_finite(found: Density) -> np.ndarray:
    """Return at which points value and gradient are finite, (chain,)."""
    arrays = [found.log_prior, found.log_likelihood, *jax.tree.leaves(found.gradient)]
    return np.stack([np.isfinite(x).reshape(NUM_POINTS, -1).all(axis=1) for x in arrays]).all(axis=0)


def check_prior(name: str, model: Evaluated) -> Line:
    """Check that the log density is finite at prior draws, and that prior draws follow the prior density."""
    share = _is_finite(model.found).mean()
    seen = f"{share:.0%} of {NUM_POINTS} draws have a finite log density and gradient"
    if not share >= LEAST_FINITE:
        return Line(name, FAILS, seen, "scale the prior to the data, or compute the likelihood with logs (jax.nn.log_sigmoid, logsumexp) and without division by what may be 0; a latent that must be positive needs a prior that is")  # fmt: skip
    if model.target.model.has_proper_prior and (unlike := unlike_draws(model.target)):
        return Line(name, FAILS, unlike, "let a distribution of your own draw from the density that its log_prob returns, Jacobian included: tfd.TransformedDistribution does; where the prior is improper, let `has_proper_prior` return False")  # fmt: skip
    return Line(name, OK, seen)


def check_gradient(name: str, model: Evaluated) -> Line:
    """Compare the gradient with respect to every latent with finite differences of the log density along a random direction."""
    target, density = model.target, _log_density(model.target, model.subject)
    finite = np.flatnonzero(_is_finite(model.found))[:4]
    if not finite.size:
        return Line(name, LEFT_OUT, "the log density is finite nowhere")
    points, gradient = (jax.tree.map(lambda x: x[finite], tree) for tree in (model.points, model.found.gradient))
    errors = {}
    for i, (latent, shape) in enumerate(target.position.shapes.items()):
        nothing = {k: jnp.zeros(s) for k, s in target.position.shapes.items()}
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(2), i), shape)
        direction = target.position.pack({**nothing, latent: noise})
        slope = sum(
            np.asarray(g * v).reshape(len(finite), -1).sum(axis=1)
            for g, v in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
        )
        errors[latent] = _relative(np.asarray(slope), _difference(density, points, direction))
    worst = max(errors, key=lambda k: np.nan_to_num(errors[k], nan=np.inf))
    if not errors[worst] <= MOST_ERROR:
        return Line(name, FAILS, f"by latent '{worst}' it differs from finite differences by {errors[worst]:.2g} of its size", "correct log_likelihood_and_gradient, or leave it out; without one, remove jax.lax.stop_gradient, rounding or a custom derivative from the likelihood")  # fmt: skip
    return Line(name, OK, f"agrees with finite differences to {errors[worst]:.1g}")


def _difference(density: Callable[[Position], Density], points: Position, direction: Position) -> np.ndarray:
    """Return the fourth-order central difference of the log density along a direction, (chain,)."""
    size = 1e-4

    def value(steps: int) -> np.ndarray:
        found = density(jax.tree.map(lambda q, v: q + steps * size * v[None], points, direction))
        return np.asarray(found.log_prior + found.log_likelihood)

    return (8 * (value(1) - value(-1)) - (value(2) - value(-2))) / (12 * size)


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference relative to the largest absolute expected value, or to 1 if that is larger."""
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def check_sharding(name: str, model: Evaluated) -> Line:
    """Compare the log density with that of padded tiles of rows, and of rows spread over two and three devices."""
    finite = _is_finite(model.found)
    worst = 0.0
    for num_devices, row_tile in ((1, 7), (2, 4), (3, model.subject.spec.num_rows)):
        target = _target(model.subject, num_devices, row_tile)
        points = jax.jit(jax.vmap(lambda q, to=target: to.position.pack(_unpacked(model.target, q))))(model.points)
        other = jax.device_get(_log_density(target, model.subject)(points))
        gradients = (jax.vmap(lambda q, of=of: _unpacked(of, q))(g) for of, g in ((model.target, model.found.gradient), (target, other.gradient)))  # fmt: skip
        pairs = [
            (model.found.log_likelihood, other.log_likelihood),
            *zip(*map(jax.tree.leaves, gradients), strict=True),
        ]
        worst = max(worst, *(_relative(np.asarray(b)[finite], np.asarray(a)[finite]) for a, b in pairs))
    if not worst <= SAME:
        return Line(name, FAILS, f"tiles of rows and padding change the log density or its gradient by {worst:.2g}", "let log_likelihood give each row's value from that row alone: no mean, sum or sort over rows, and latents with one entry a row in local_latents")  # fmt: skip
    return Line(name, OK, f"padded tiles and two or three devices give the same to {worst:.1g}")


def _unpacked(target: Target, position: Position) -> dict[str, jax.Array]:
    return target.position.unpack(position, jnp.dtype("float64"))


def check_predictive(name: str, model: Evaluated) -> Line:
    """Check the shapes of predictions and outcomes."""
    if not model.target.model.has_predictions:
        return Line(name, LEFT_OUT, "the model predicts nothing with these options")
    latents = jax.eval_shape(model.target.constrain, model.target.position.position_shapes)
    check_predictions(model.target.model, latents, model.subject.spec)
    return Line(name, OK, "predictions have the shape of outcomes")


def _programs(name: str, subject: Subject, num_datasets: int) -> DatasetPrograms:
    """Return the programs of the No-U-Turn sampler for this many datasets."""
    devices = jax.devices()[:1]
    mesh = jax.make_mesh((1, 1), (CHAIN_AXIS, DATA_AXIS), axis_types=(AxisType.Auto,) * 2, devices=devices)
    kernel_class, options = resolve_component("kernel", KERNEL, {"max_tree_depth": MOST_DEPTH[name]})
    # Parameters of the simulated datasets are draws of the prior too.
    initial = {"method": "prior"}
    sampling = SamplingSettings.model_validate({"chains": NUM_CHAINS, "warmup": NUM_WARMUP, "initial": initial})
    target = _target(subject)
    kernel = kernel_class(resolve_auto(options, target, is_at_mode=False), NUM_WARMUP)
    counts = [subject.spec.num_rows] * num_datasets
    return DatasetPrograms(Program(target, kernel, mesh, sampling, NUM_CHAINS, NUM_DRAWS), counts)


def check_calibration(name: str, model: Evaluated) -> Line:
    """Simulate datasets of a few rows from the model, sample every posterior, and rank the truth."""
    subject = model.subject.first(FEW_ROWS)
    if not (model.target.model.has_predictions and model.target.model.has_proper_prior):
        return Line(
            name, LEFT_OUT, "datasets are simulated from a prior and predictions, and the model lacks one of them"
        )
    programs = _programs(name, subject, NUM_DATASETS)
    try:
        simulator = Simulator(programs.program.target, subject.rows)
    except ConfigError as error:
        return Line(name, LEFT_OUT, error.message)
    shapes = jax.tree.leaves(programs.program.target.position.position_shapes)
    num_coordinates = sum(math.prod(each.shape) for each in shapes)
    if num_coordinates > MOST_COORDINATES:
        return Line(name, LEFT_OUT, f"{NUM_DATASETS} posteriors of {num_coordinates} coordinates would take too long")
    found = calibrate(programs, simulator.draw(3, NUM_DATASETS), NUM_DRAWS, seed=5)
    worst = min(found.p_values, key=lambda k: np.nan_to_num(found.p_values[k], nan=-1))
    about = f"truths of {NUM_DATASETS} simulated datasets among {found.num_ranked} draws each"
    if not found.smallest >= LEAST_P:
        return Line(name, FAILS, f"{about}: ranks of {worst} are not uniform (p = {found.smallest:.1g})", "likelihood and predict must be of one distribution: compare log_likelihood with predict(...).log_prob(outcome), with its normalisation; then look at the geometry of the posterior")  # fmt: skip
    if found.num_ranked < FEWEST_DRAWS:
        return Line(name, FAILS, f"{about}: draws are too correlated to tell", "write the model with fewer strong correlations between latents, such as non-centred effects")  # fmt: skip
    return Line(name, OK, f"{about}: ranks are uniform (p = {found.smallest:.2g})")


def check_sampling(name: str, model: Evaluated) -> Line:
    """Sample for a short time and assess convergence and divergences."""
    programs = _programs(name, model.subject, 1)
    draws = programs.run(programs.arguments(GroupKey(6, 0)), programs.put_data(model.subject.rows), NUM_DRAWS)
    lp = draws.statistics["lp"][0].T[..., None]
    r_hat = float(convergence_table(lp)["r_hat"][0])
    divergent = float(np.mean(draws.statistics["diverging"]))
    seen = f"{NUM_CHAINS} chains of {NUM_DRAWS} draws: R-hat {r_hat:.3f} of the log density, {divergent:.1%} divergent"
    if not divergent <= MOST_DIVERGENT:
        return Line(name, FAILS, seen, "non-centre hierarchical effects (see docs/how-to/sampling-problems.md), or bound scales away from 0")  # fmt: skip
    if not r_hat <= MOST_R_HAT:
        return Line(name, FAILS, seen, "chains disagree: the posterior has several modes or is badly scaled; tighten the prior, or standardise the columns of the data")  # fmt: skip
    return Line(name, OK, seen)


CHECKS: dict[str, Callable[[str, Evaluated], Line]] = {
    "prior": check_prior,
    "gradient": check_gradient,
    "sharding": check_sharding,
    "prediction": check_predictive,
    "calibration": check_calibration,
    "sampling": check_sampling,
}
"""Name of a check -> the check, in the order in which they run."""
