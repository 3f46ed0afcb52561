"""The checks of a model, in the order in which a mistake is best understood."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.config.registry import resolve_component
from bayesmesh.config.user_code import explaining
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Density, Position
from bayesmesh.operations.check.calibration import FEWEST_DRAWS, calibrate
from bayesmesh.operations.check.line import FAILS, LEFT_OUT, OK, Line, check_options
from bayesmesh.operations.check.model import Subject
from bayesmesh.operations.check.prior_draws import unlike_draws
from bayesmesh.sampling.checks.model import check_model, check_predictions
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS
from bayesmesh.sampling.density.prior_draws import Simulator
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.sizes import resolve_metric
from bayesmesh.sampling.program.values import GroupKey

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
    for name, one in CHECKS.items():
        try:
            with explaining([subject.path]):
                yield one(name, model)
        except ConfigError as error:
            yield Line(name, FAILS, error.message, error.remedy)


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
    kernel = kernel_class(resolve_metric(options, target, is_at_mode=False), NUM_WARMUP)
    counts = [subject.spec.num_rows] * num_datasets
    return DatasetPrograms(Program(target, kernel, mesh, sampling, NUM_CHAINS, NUM_DRAWS), counts)


def check_calibration(name: str, model: Evaluated) -> Line:
    """Simulate datasets of a few rows from the model, sample every posterior, and rank the truth."""
    subject = model.subject.first(FEW_ROWS)
    programs = _programs(name, subject, NUM_DATASETS)
    if not (model.target.model.has_predictions and model.target.model.has_proper_prior):
        return Line(
            name, LEFT_OUT, "datasets are simulated from a prior and predictions, and the model lacks one of them"
        )
    try:
        simulator = Simulator(programs.program.target, subject.rows)
    except ConfigError as error:
        return Line(name, LEFT_OUT, error.message)
    num_coordinates = _num_coordinates(programs.program.target)
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


def _num_coordinates(target: Target) -> int:
    return sum(int(np.prod(s.shape)) for s in jax.tree.leaves(target.position.position_shapes))


def check_sampling(name: str, model: Evaluated) -> Line:
    """Sample for a short time and assess convergence and divergences."""
    programs = _programs(name, model.subject, 1)
    draws = programs.run(programs.arguments(GroupKey(6, 0)), programs.put_data(model.subject.rows), NUM_DRAWS)
    lp = draws.statistics["lp"][0].T[..., None]
    r_hat = float(convergence_table(lp)["r_hat"][0])
    divergent = float(np.mean(draws.statistics["diverging"]))
    seen = f"{NUM_CHAINS} chains of {NUM_DRAWS} draws: R-hat {r_hat:.3f} of the log density, {divergent:.1%} divergent"
    if not divergent <= MOST_DIVERGENT:
        return Line(name, FAILS, seen, "non-centre hierarchical effects (see docs/guide/troubleshooting.md), or bound scales away from 0")  # fmt: skip
    if not r_hat <= MOST_R_HAT:
        return Line(name, FAILS, seen, "chains disagree: the posterior has several modes or is badly scaled; tighten the prior, or standardise the columns of the data")  # fmt: skip
    return Line(name, OK, seen)


Check = Callable[[str, Evaluated], Line]

CHECKS: dict[str, Check] = {
    "prior": check_prior,
    "gradient": check_gradient,
    "sharding": check_sharding,
    "prediction": check_predictive,
    "calibration": check_calibration,
    "sampling": check_sampling,
}
"""Name of a check -> the check, in the order in which they run."""
