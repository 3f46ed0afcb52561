"""What stopping at a look costs: many runs on a known posterior, stopped by a rule or run for a fixed number of draws.

Both ways see the same chains, so that they differ by the rule alone; the fixed number is the mean of the numbers at
which the rule stopped. Chains begin in the posterior and are not tuned: what is measured is not a lack of warmup.

References:
    Glynn and Whitt 1992, "The asymptotic validity of sequential stopping rules for stochastic simulations",
    doi:10.1214/aoap/1177005777: coverage is right in the limit of strict targets, not before; Flegal, Haran and Jones
    2008, "Markov chain Monte Carlo: can we trust the third significant figure?", doi:10.1214/08-STS257; Vats, Flegal and
    Jones 2019, "Multivariate output analysis for Markov chain Monte Carlo", doi:10.1093/biomet/asz002.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from bayesmesh.config.blocks import StopSettings
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.looks import look_numbers, within
from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget

__all__ = ["RULES", "SPEEDS", "Setting", "make_draws", "measure", "stop_runs"]

CHAINS, DIMENSION = 4, 2
QUANTITIES = DIMENSION + 1
"""Coordinates of a standard normal, and its log density, which is skewed."""

STEP_SIZE = 0.25
LEVEL, QUANTILE = 0.9, 1.6448536269514722

SPEEDS = {"quick": 4, "slow": 3}
"""Chains -> leapfrog steps of a trajectory: autocorrelations of 0.54 and 0.73 from one draw to the next."""

RULES: dict[str, StopSettings] = {
    "gates": StopSettings(min_ess_bulk=400, min_ess_tail=400, max_r_hat=1.01),
    "ESS 100, early": StopSettings(min_ess_bulk=100, first_look=20),
    "MCSE 0.1, often": StopSettings(max_mcse={"x": 0.1, "log_density": 0.1}, first_look=10, growth=1.1),
}
"""Rules from cautious to greedy; a standard error of 0.1 deviations takes 100 effective draws."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How large the study is.

    Attributes:
        replications: runs of `CHAINS` chains each.
        limits: rule -> most draws of a quick and of a slow chain; longer than nearly all runs need.
        seed: of all chains.
    """

    replications: int = 1000
    limits: Mapping[str, tuple[int, int]] = dataclasses.field(
        default_factory=lambda: {"gates": (1139, 2563), "ESS 100, early": (400, 800), "MCSE 0.1, often": (400, 800)}
    )
    seed: int = 20261121


class Runs(NamedTuple):
    """Replications after they ended; arrays (replication, quantity) but for `num_draws` and `at_limit`, (replication,)."""

    num_draws: np.ndarray
    at_limit: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    mcse: np.ndarray
    mass: np.ndarray


def make_draws(replications: int, num_draws: int, num_leapfrog_steps: int, seed: int) -> np.ndarray:
    """Return draws of all replications, shape (chain, draw, replication, quantity), float64.

    One program moves all chains of all replications at once, with the project's own kernel.
    """

    target = FunctionTarget(lambda x: -0.5 * jnp.sum(x**2))
    kernel = Hmc(Options(num_leapfrog_steps=num_leapfrog_steps), 0)
    tuning = HamiltonianTuning(jnp.asarray(STEP_SIZE, jnp.float64), (), ())

    @jax.jit
    def run(key: jax.Array) -> jax.Array:
        key_start, key_steps = jax.random.split(key)
        keys = jax.random.split(key_steps, CHAINS * replications)
        start = Position(jax.random.normal(key_start, (CHAINS * replications, DIMENSION), jnp.float64), None)

        def step(state: HamiltonianState, draw: jax.Array) -> tuple[HamiltonianState, jax.Array]:
            at_draw = jax.vmap(lambda k: jax.random.fold_in(k, draw))(keys)
            state, info = kernel.step(at_draw, state, target, tuning)
            assert state.position.shared is not None
            return state, jnp.concatenate([state.position.shared, info.lp[:, None]], axis=1)

        return jax.lax.scan(step, kernel.init(keys, start, target), jnp.arange(num_draws))[1]

    drawn = np.asarray(run(jax.random.key(seed)))
    return np.moveaxis(drawn.reshape(num_draws, CHAINS, replications, QUANTITIES), 0, 1)


def _table(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Return the project's own statistics, each (replication, quantity), of draws (chain, draw, replication, quantity)."""
    table = convergence_table(draws.reshape(*draws.shape[:2], -1))
    return {name: values.reshape(draws.shape[2:]) for name, values in table.items()}


def _is_met(table: Mapping[str, np.ndarray], rule: StopSettings) -> np.ndarray:
    """Return which replications meet a rule, (replication,), as `judge_look` would for each."""
    met = np.ones(len(table["mean"]), bool)
    for key, statistic in (("min_ess_bulk", "ess_bulk"), ("min_ess_tail", "ess_tail"), ("max_r_hat", "r_hat")):
        if (target := getattr(rule, key)) is not None:
            met &= within(table[statistic], target, is_upper=key.startswith("max")).all(axis=1)
    for name, target in (rule.max_mcse or {}).items():
        of_name = slice(0, DIMENSION) if name == "x" else slice(DIMENSION, None)
        met &= within(table["mcse_mean"][:, of_name], target, is_upper=True).all(axis=1)
    return met


def stop_runs(draws: np.ndarray, rule: StopSettings) -> Runs:
    """Stop every replication by a rule, at the last draw at the latest.

    Args:
        draws: shape (chain, draw, replication, quantity).
        rule: when to look, and the targets.
    """
    _, limit, replications, quantities = draws.shape
    runs = _empty(replications, quantities)
    going = np.arange(replications)
    looks = look_numbers(rule.first_look, rule.growth, limit)
    for number in looks if looks[-1] == limit else [*looks, limit]:
        seen = draws[:, :number, going]
        table = _table(seen)
        is_met = _is_met(table, rule) if number in looks else np.zeros(len(going), bool)
        ends = is_met | (number == limit)
        _fill(runs, going[ends], number, {k: v[ends] for k, v in table.items()}, seen[:, :, ends])
        runs.at_limit[going[ends]] = ~is_met[ends]
        going = going[~ends]
        if not going.size:
            break
    return runs


def _run_fixed(draws: np.ndarray, num_draws: int) -> Runs:
    """Run every replication for the same number of draws."""
    runs = _empty(*draws.shape[2:])
    seen = draws[:, :num_draws]
    _fill(runs, np.arange(draws.shape[2]), num_draws, _table(seen), seen)
    return runs


def _empty(replications: int, quantities: int) -> Runs:
    each = (np.full((replications, quantities), np.nan) for _ in range(4))
    return Runs(np.zeros(replications, np.int64), np.zeros(replications, bool), *each)


def _fill(runs: Runs, where: np.ndarray, number: int, table: Mapping[str, np.ndarray], draws: np.ndarray) -> None:
    if not where.size:
        return
    runs.num_draws[where] = number
    for name, statistic in (("mean", "mean"), ("sd", "sd"), ("mcse", "mcse_mean")):
        getattr(runs, name)[where] = table[statistic]
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=(0, 1))
    runs.mass[where] = _probability(high) - _probability(low)


def _probability(values: np.ndarray) -> np.ndarray:
    """Return the posterior probability below each value, (replication, quantity): known in closed form.

    Half the squared radius of a standard normal in two dimensions is exponential, and the log density is less that.
    """
    return np.concatenate([ndtr(values[:, :DIMENSION]), np.exp(np.minimum(values[:, DIMENSION:], 0.0))], axis=1)


TRUE_MEAN, TRUE_SD = np.array([0.0] * DIMENSION + [-1.0]), 1.0


def measure(setting: Setting) -> Iterator[dict[str, object]]:
    """Yield the rows of the table: for each kind of chain, rule and quantity one stopped and one fixed.

    Columns: `chains`, `rule`, `quantity`, `ended` (by the rule, or at a fixed number), `replications`; `draws`, the mean
    number per chain, and `draws_sd`; `at_limit`, the share that the rule did not end; `coverage` of the 90 % interval of
    the mean, mean +- 1.645 standard errors; `bias_mean` and `bias_sd` in posterior deviations; `error`, the root mean
    square error of the mean, `mcse`, the root mean square of what was reported, and their ratio; `mass`, the posterior
    probability of the interval between the 5 % and the 95 % quantile of the draws. `*_se` are standard errors over
    replications. `*_change` are the rule's values less the fixed ones, of the same chains and so with a smaller error;
    None in rows that did not end by the rule.
    """
    for speed, (chains, steps) in enumerate(SPEEDS.items()):
        longest = max(limits[speed] for limits in setting.limits.values())
        draws = make_draws(setting.replications, longest, steps, setting.seed)
        for name, rule in RULES.items():
            mine = draws[:, : setting.limits[name][speed]]
            stopped = stop_runs(mine, rule)
            fixed = _run_fixed(mine, round(float(stopped.num_draws.mean())))
            for quantity, part in (("coordinate", slice(0, DIMENSION)), ("log density", slice(DIMENSION, None))):
                about = {"chains": chains, "rule": name, "quantity": quantity}
                changes = _changes(stopped, fixed, part)
                yield {**about, "ended": "rule", **_row(stopped, part), **changes}
                yield {**about, "ended": "fixed", **_row(fixed, part), **dict.fromkeys(changes)}


def _of_runs(runs: Runs, part: slice) -> dict[str, np.ndarray]:
    """Return what is averaged over replications, each (replication,): the coordinates of one are averaged before."""
    error = runs.mean[:, part] - TRUE_MEAN[part]
    values = {
        "coverage": np.abs(error) <= QUANTILE * runs.mcse[:, part],
        "bias_mean": error / TRUE_SD,
        "bias_sd": runs.sd[:, part] - TRUE_SD,
        "mass": runs.mass[:, part],
    }
    return {name: value.mean(axis=1, dtype=np.float64) for name, value in values.items()}


def _with_error(name: str, each: np.ndarray) -> dict[str, float]:
    return {name: float(each.mean()), f"{name}_se": float(each.std(ddof=1) / np.sqrt(len(each)))}


def _changes(stopped: Runs, fixed: Runs, part: slice) -> dict[str, float]:
    one, other = _of_runs(stopped, part), _of_runs(fixed, part)
    found: dict[str, float] = {}
    for name in one:
        found |= _with_error(f"{name}_change", one[name] - other[name])
    return found


def _row(runs: Runs, part: slice) -> dict[str, float]:
    """Return the numbers of one row."""
    row: dict[str, float] = {
        "replications": len(runs.num_draws),
        "draws": float(runs.num_draws.mean()),
        "draws_sd": float(runs.num_draws.std(ddof=1)),
        "at_limit": float(runs.at_limit.mean()),
    }
    for name, each in _of_runs(runs, part).items():
        row |= _with_error(name, each)
    errors = runs.mean[:, part] - TRUE_MEAN[part], runs.mcse[:, part]
    actual, reported = (float(np.sqrt((v**2).mean())) for v in errors)
    return {**row, "error": actual, "mcse": reported, "mcse_over_error": reported / actual}
