"""The checks of a kernel: the requirements of docs/contracts/kernel.md, tested on a normal posterior that is known exactly."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.config.registry import resolve_component
from bayesmesh.config.settings import Settings
from bayesmesh.config.user_code import explaining
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Kernel
from bayesmesh.operations.check.line import FAILS, OK, Line, check_options, run_checks
from bayesmesh.sampling.checks.kernel import offers_turns
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.sampling.program.chain_group import PROGRAMS, Program, name_leaves
from bayesmesh.sampling.program.sizes import resolve_auto
from bayesmesh.sampling.program.values import ChainState, GroupKey

NUM_ROWS, DIMENSION = 40, 3
NUM_WARMUP, NUM_DRAWS, NUM_IN_TURNS, FEWEST_CHAINS = 300, 2000, 20, 4
MOST_Z, MOST_R_HAT, MOST_SD = 5.0, 1.05, 0.25
"""Limits on errors of means in standard errors, on R-hat, and on relative errors of standard deviations."""

MOST_BIAS, MOST_RATIO = 0.5, 2.0
"""The same limits for kernels without an accept step: error of means in standard deviations, and the factor by which these may be off."""

FURTHEST = 100.0
"""Number of posterior standard deviations from the mean that no draw of this normal posterior exceeds."""

LONGEST_S = 120.0
"""Time limit for the draws of one call, which usually take seconds."""

NUM_STARTS = 8
"""Number of times that all chains start from one position."""

SAME = 1e-9
NEEDED = ("lp", "log_likelihood", "n_steps")


class Run(NamedTuple):
    """A kernel after warmup, and draws of it.

    Attributes:
        program, compiled, data: its programs, on rows of the model `gaussian`.
        warm, last: states before and after the draws.
        statistics: name -> (draw, chain).
        draws: (draw, chain, dimension).
        mean, sd: of the exact posterior, (dimension,) and a number.
    """

    program: Program
    compiled: dict[str, Any]
    data: dict[str, jax.Array]
    warm: ChainState
    last: ChainState
    statistics: dict[str, np.ndarray]
    draws: np.ndarray
    mean: np.ndarray
    sd: float


def check(kernel_class: type[Kernel[Any, Any, Any, Any]], options: Settings, path: Path) -> Iterator[Line]:
    """Yield the outcome of every check; if the kernel cannot be run at all, yield only that.

    Args:
        kernel_class: class of the kernel.
        options: its options.
        path: its source file, for messages.
    """
    yield check_options("options", type(options), path)
    lacking = sorted(set(NEEDED) - set(getattr(kernel_class, "statistics", {})))
    if lacking:
        yield Line("statistics", FAILS, f"lacks {', '.join(lacking)}", "declare them in `statistics` and return them in Info: the posterior is made of them")  # fmt: skip
        return
    try:
        with explaining([path], method=kernel_class.step):
            run = _sample(kernel_class, options)
    except ConfigError as error:
        yield Line("run", FAILS, error.message.partition("\n")[0], error.remedy)
        return
    yield Line("run", OK, f"{run.program.num_chains} chains made {NUM_WARMUP} warmup iterations and {NUM_DRAWS} draws")
    checks = CHECKS | ({"turns": check_turns} if offers_turns(run.program.kernel) else {})
    yield from run_checks(checks, run, path, method=kernel_class.step)


def _sample(kernel_class: type[Kernel[Any, Any, Any, Any]], options: Settings) -> Run:
    """Compile the programs of the kernel and run them."""
    rows = {"x": 0.5 + np.random.default_rng(0).standard_normal((NUM_ROWS, DIMENSION))}
    spec = DataSpec(NUM_ROWS, {"x": FieldSpec((DIMENSION,), "float64")}, {"noise_scale": 1.0}, "float64")
    model_class, model_options = resolve_component("model", "gaussian", {})
    target = Target(model_class(model_options, spec), spec, lay_out_rows(NUM_ROWS, 1, NUM_ROWS))
    mesh = jax.make_mesh((1, 1), (CHAIN_AXIS, DATA_AXIS), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:1])
    multiple = kernel_class.chain_multiple
    num_chains = math.ceil(max(FEWEST_CHAINS, kernel_class.min_chains) / multiple) * multiple
    sampling = SamplingSettings.model_validate({"chains": num_chains, "warmup": NUM_WARMUP, "initial": {"method": "prior"}})  # fmt: skip
    kernel = kernel_class(resolve_auto(options, target, is_at_mode=False), NUM_WARMUP)
    program = Program(target, kernel, mesh, sampling, num_chains, NUM_DRAWS)
    compiled = {name: program.trace(name).lower().compile() for name in PROGRAMS}
    data = program.put_data(rows)
    begin, _ = compiled["initialise"](program.arguments(GroupKey(1, 0)), data)
    warm, _, _ = _go(program, compiled, data, begin, 0, NUM_WARMUP)
    last, statistics, draws = _go(program, compiled, data, warm, NUM_WARMUP, NUM_DRAWS)
    precision = 1.0 / float(model_options.model_dump()["prior_scale"]) ** 2 + NUM_ROWS
    return Run(program, compiled, data, warm, last, statistics, draws, rows["x"].sum(0) / precision, precision**-0.5)


def _go(
    program: Program, compiled: dict[str, Any], data: Any, state: Any, first: int, count: int, seed: int = 1
) -> tuple[ChainState, dict[str, np.ndarray], np.ndarray]:
    """Run iterations from an absolute number on, from a checkpoint as the store keeps it.

    Raises:
        ConfigError: they take too long.
    """
    leaves = dict(zip(name_leaves(state), map(np.asarray, jax.tree.leaves(state)), strict=True))
    given, arguments = program.state_to_device(leaves), program.arguments(GroupKey(seed, 0))

    def make() -> tuple[ChainState, dict[str, np.ndarray], np.ndarray]:
        state, statistics, draws = compiled["segment"](arguments, data, given, np.uint32(first), np.int32(count))
        return state, program.statistics_to_host(statistics, count), program.draws_to_host(draws, count)["mean"]

    return within(LONGEST_S, make)


def within[Made](limit_s: float, make: Callable[[], Made]) -> Made:
    """Return a function's result unless it takes longer than a limit; a loop of a compiled program cannot be interrupted.

    Raises:
        ConfigError: the function takes longer.
    """
    # Its threads are daemons, which do not keep the process from ending.
    pool = ThreadPool(1)
    running = pool.apply_async(make)
    pool.close()
    running.wait(limit_s)
    if not running.ready():
        problem = f"the draws did not end within {limit_s:g} s"
        raise ConfigError(problem, "look at loops whose condition may stay true, and at `is_complete`")
    pool.join()
    return running.get()


def check_statistics(name: str, run: Run) -> Line:
    """Check that the statistics are numbers."""
    for key in NEEDED:
        if not np.isfinite(run.statistics[key]).all():
            return Line(name, FAILS, f"'{key}' is not finite in some draw", "compute it at the position that is kept")
    return Line(name, OK, f"{', '.join(sorted(run.statistics))} are recorded")


def check_checkpoint(name: str, run: Run) -> Line:
    """Check that the state is all that the kernel remembers: a run cut anywhere gives the same draws."""
    program, half = (run.program, run.compiled, run.data), NUM_DRAWS // 2
    middle, _, one = _go(*program, run.warm, NUM_WARMUP, half)
    _, _, two = _go(*program, middle, NUM_WARMUP + half, NUM_DRAWS - half)
    if not np.array_equal(np.concatenate([one, two]), run.draws):
        return Line(name, FAILS, "cut in the middle, the draws are others", "keep everything in the state, and draw random numbers from the key of the step alone")  # fmt: skip
    return Line(name, OK, "cut in the middle, the draws are the same bit by bit")


def check_keys(name: str, run: Run) -> Line:
    """Check that other keys give other draws, and that chains differ."""
    _, _, other = _go(run.program, run.compiled, run.data, run.warm, NUM_WARMUP, 20, seed=2)
    if np.array_equal(other, run.draws[:20]):
        if np.ptp(run.draws, axis=0).max() == 0:
            return Line(
                name, FAILS, "no chain moves", "look at proposals and at the accept step: is a number NaN, or 0?"
            )
        return Line(name, FAILS, "another seed gives the same draws", "draw from the key that `step` is given")
    for begin, after in _from_one_position(run):
        moved = after[(after != begin).any(axis=1)]
        if len(np.unique(moved, axis=0)) < len(moved):
            return Line(name, FAILS, "two chains that start at one position make the same moves", "give every chain numbers from its own key, also for momenta and proposals")  # fmt: skip
    return Line(name, OK, "another seed gives other draws, and chains go their own ways")


def _from_one_position(run: Run) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield where the first chain is, (dimension,), and where all chains are after two iterations from there, (chain, dimension).

    The first may move without a random number, such as the drift of an underdamped Langevin step.
    """
    program, state = run.program, jax.device_get(run.last.kernel)
    position = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x)[:1], x.shape), state.position)
    keys = jax.random.split(jax.random.key(0), program.num_chains)
    target = program.target.bind(run.data)
    placed = jax.jit(lambda q: program.kernel.init(keys, q, target))(position)
    where = np.asarray(program.target.constrain(jax.tree.map(lambda x: x[0], position))["mean"])
    for number in range(NUM_STARTS):
        begin = ChainState(placed, run.last.adaptation)
        _, _, draws = _go(program, run.compiled, run.data, begin, NUM_WARMUP + NUM_DRAWS + number, 2)
        yield where, draws[1]


def check_density(name: str, run: Run) -> Line:
    """Check that the state carries the log density of its position."""
    state = jax.device_get(run.last.kernel)
    target, keys = run.program.target.bind(run.data), jax.random.split(jax.random.key(0), run.program.num_chains)
    found = jax.jit(lambda q: run.program.kernel.init(keys, q, target))(jax.tree.map(jnp.asarray, state.position))
    for key in ("log_prior", "log_likelihood"):
        if hasattr(state, key) and not np.allclose(getattr(state, key), getattr(found, key), rtol=SAME, atol=SAME):
            return Line(name, FAILS, f"`{key}` of the state is not that of its position", "keep the numbers of the position that is kept, also where a proposal is rejected")  # fmt: skip
    reported = run.program.num_reported
    for key, now in (("lp", state.log_prior + state.log_likelihood), ("log_likelihood", state.log_likelihood)):
        if not np.allclose(run.statistics[key][-1], now[:reported], rtol=SAME, atol=SAME):
            return Line(name, FAILS, f"the statistic `{key}` is not that of the position that is kept", "return in Info the numbers of the state that `step` returns")  # fmt: skip
    return Line(name, OK, "state and statistics carry the log density of the position")


def check_draws(name: str, run: Run) -> Line:
    """Compare draws with the exact posterior; for a kernel without an accept step, allow for the bias of the step size."""
    if not (furthest := np.max(np.abs(run.draws - run.mean) / run.sd)) <= FURTHEST:
        return Line(name, FAILS, f"a draw is {furthest:.2g} posterior deviations from the mean", "chains run away: look at the sign of the gradient, and at the step size")  # fmt: skip
    by_chain = np.moveaxis(run.draws, 0, 1)
    table = convergence_table(by_chain)
    error = np.abs(by_chain.mean((0, 1)) - run.mean) / table["mcse_mean"]
    seen = f"R-hat {np.max(table['r_hat']):.3f}; means off by {error.max():.1f} standard errors; deviations by {np.abs(by_chain.std((0, 1)) / run.sd - 1).max():.0%}"  # fmt: skip
    if not np.max(table["r_hat"]) <= MOST_R_HAT:
        return Line(name, FAILS, seen, "chains do not agree on a normal posterior: look at step size and accept step")
    if not run.program.kernel.is_adjusted:
        return _check_biased(name, by_chain, run)
    if not (error <= MOST_Z).all() or not (np.abs(by_chain.std((0, 1)) / run.sd - 1) <= MOST_SD).all():
        return Line(name, FAILS, seen, "the draws are not of the target: look at the accept step and at detailed balance")  # fmt: skip
    return Line(name, OK, seen)


def _check_biased(name: str, by_chain: np.ndarray, run: Run) -> Line:
    """Compare draws (chain, draw, dimension) that a step size biases with the exact posterior."""
    mean = np.abs(by_chain.mean((0, 1)) - run.mean) / run.sd
    ratio = by_chain.std((0, 1)) / run.sd
    seen = f"without an accept step: means off by {mean.max():.2f} deviations; deviations {ratio.min():.2f} to {ratio.max():.2f} times those of the posterior"  # fmt: skip
    if (mean <= MOST_BIAS).all() and (np.abs(np.log(ratio)) <= np.log(MOST_RATIO)).all():
        return Line(name, OK, seen)
    return Line(name, FAILS, seen, "that is more than a step size explains: look at the sign of the gradient, the scale of the noise, random numbers that are used twice, and a step size far too large")  # fmt: skip


def check_turns(name: str, run: Run) -> Line:
    """Check that draws in turns, which larger models take, are those of chains that wait."""
    turning = copy.copy(run.program)
    turning.takes_turns = not run.program.takes_turns
    compiled = {"segment": turning.trace("segment").lower().compile()}
    _, statistics, draws = _go(turning, compiled, run.data, run.warm, NUM_WARMUP, NUM_IN_TURNS)
    if not np.allclose(draws, run.draws[:NUM_IN_TURNS], rtol=SAME, atol=SAME):
        return Line(name, FAILS, "the parts of the step make other draws than `step`", "draw from the key that each part is given, and leave complete transitions unchanged")  # fmt: skip
    for key, found in statistics.items():
        if not np.allclose(found, run.statistics[key][:NUM_IN_TURNS], rtol=SAME, atol=SAME, equal_nan=True):
            return Line(name, FAILS, f"the statistic `{key}` of the parts is not that of `step`", "return from `end` what `step` returns")  # fmt: skip
    return Line(name, OK, "in turns, the draws are the same")


CHECKS: dict[str, Callable[[str, Run], Line]] = {
    "statistics": check_statistics,
    "checkpoint": check_checkpoint,
    "keys": check_keys,
    "density": check_density,
    "draws": check_draws,
}
"""Name of a check of every kernel -> the check, in the order in which they run."""
