"""Measure the cost of stopping at a look: many runs on a known posterior, stopped by a rule or after a fixed number of draws.

Both use the same chains, so that only the rule differs. The fixed number of draws is the mean of the numbers at
which the rule stopped. Chains start from the posterior and are not tuned, which rules out too short a warmup as a cause.

References:
    Glynn and Whitt 1992, "The asymptotic validity of sequential stopping rules for stochastic simulations",
    doi:10.1214/aoap/1177005777: coverage is correct only in the limit of strict targets. Flegal, Haran and Jones 2008,
    "Markov chain Monte Carlo: can we trust the third significant figure?", doi:10.1214/08-STS257. Vats, Flegal and Jones
    2019, "Multivariate output analysis for Markov chain Monte Carlo", doi:10.1093/biomet/asz002.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from bayesmesh.config.blocks import StopSettings
from bayesmesh.diagnostics.convergence import convergence_table, within
from bayesmesh.diagnostics.interim import TARGETS, look_numbers
from bayesmesh_reproduction.hmc import SEED, run_hmc

CHAINS, DIMENSION = 4, 2
QUANTITIES = {"coordinate": slice(0, DIMENSION), "log density": slice(DIMENSION, None)}
"""Coordinates of a standard normal, and its log density, which is skewed."""

TRUE_MEAN, TRUE_SD = np.array([0.0] * DIMENSION + [-1.0]), 1.0

STEP_SIZE = 0.25
LEVEL, QUANTILE = 0.9, 1.6448536269514722

SPEEDS = {"quick": 4, "slow": 3}
"""Chains -> leapfrog steps of a trajectory: lag-one autocorrelations of 0.54 and 0.73."""

RULES: dict[str, StopSettings] = {
    "gates": StopSettings(min_ess_bulk=400, min_ess_tail=400, max_r_hat=1.01),
    "ESS 100, early": StopSettings(min_ess_bulk=100, first_look=20),
    "MCSE 0.1, often": StopSettings(max_mcse={"x": 0.1, "log_density": 0.1}, first_look=10, growth=1.1),
}
"""Rules from cautious to greedy; a standard error of 0.1 posterior deviations takes 100 effective draws."""


LIMITS = {"gates": (1139, 2563), "ESS 100, early": (400, 800), "MCSE 0.1, often": (400, 800)}
"""Rule -> largest number of draws of a quick and of a slow chain; longer than nearly all runs need."""


class Setting(NamedTuple):
    """Size of the study.

    Attributes:
        replications: runs of `CHAINS` chains each.
        limits: see `LIMITS`.
        seed: seed of all chains.
    """

    replications: int = 1000
    limits: Mapping[str, tuple[int, int]] = LIMITS
    seed: int = SEED


class Runs(NamedTuple):
    """Ended replications; arrays (replication, quantity), but `num_draws` and `at_limit` (replication,)."""

    num_draws: np.ndarray
    at_limit: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    mcse: np.ndarray
    mass: np.ndarray


def _log_density(x: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(x**2)


def make_draws(replications: int, num_draws: int, num_leapfrog_steps: int, seed: int) -> np.ndarray:
    """Return draws of all replications, shape (chain, draw, replication, quantity), float64.

    One program moves all chains of all replications at once, with the kernel `hmc`.
    """

    @jax.jit
    def run(key: jax.Array) -> jax.Array:
        key_start, key_steps = jax.random.split(key)
        keys = jax.random.split(key_steps, CHAINS * replications)
        start = jax.random.normal(key_start, (CHAINS * replications, DIMENSION), jnp.float64)
        states, info = run_hmc(_log_density, start, keys, num_draws, STEP_SIZE, num_leapfrog_steps)
        return jnp.concatenate([states, info.lp[..., None]], axis=-1)

    drawn = np.asarray(run(jax.random.key(seed)))
    return np.moveaxis(drawn.reshape(num_draws, CHAINS, replications, DIMENSION + 1), 0, 1)


def _table(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Return the project's own statistics, each (replication, quantity), of draws (chain, draw, replication, quantity)."""
    table = convergence_table(draws.reshape(*draws.shape[:2], -1))
    return {name: values.reshape(draws.shape[2:]) for name, values in table.items()}


def _is_met(table: Mapping[str, np.ndarray], rule: StopSettings) -> np.ndarray:
    """Return which replications meet a rule, (replication,), as `evaluate_targets` does for each."""
    met = np.ones(len(table["mean"]), bool)
    for key, statistic in TARGETS:
        if (target := getattr(rule, key)) is not None:
            met &= within(table[statistic], target, is_upper=key.startswith("max")).all(axis=1)
    for name, target in (rule.max_mcse or {}).items():
        part = QUANTITIES["coordinate" if name == "x" else "log density"]
        met &= within(table["mcse_mean"][:, part], target, is_upper=True).all(axis=1)
    return met


def stop_runs(draws: np.ndarray, rule: StopSettings) -> Runs:
    """Stop every replication by a rule, at the last draw at the latest.

    Args:
        draws: shape (chain, draw, replication, quantity).
        rule: looks and targets.
    """
    _, limit, replications, quantities = draws.shape
    runs = Runs(
        np.zeros(replications, np.int64), np.zeros(replications, bool),
        *(np.full((replications, quantities), np.nan) for _ in range(4)),
    )  # fmt: skip
    going = np.arange(replications)
    looks = look_numbers(rule.first_look, rule.growth, limit)
    for number in dict.fromkeys([*looks, limit]):
        if not going.size:
            break
        seen = draws[:, :number, going]
        table = _table(seen)
        is_met = _is_met(table, rule) & (number in looks)
        ends = is_met | (number == limit)
        if ends.any():
            ended = _summarise(number, {k: v[ends] for k, v in table.items()}, seen[:, :, ends], ~is_met[ends])
            for array, values in zip(runs, ended, strict=True):
                array[going[ends]] = values
        going = going[~ends]
    return runs


def _run_fixed(draws: np.ndarray, num_draws: int) -> Runs:
    """Run every replication for the same number of draws."""
    seen = draws[:, :num_draws]
    return _summarise(num_draws, _table(seen), seen, np.zeros(draws.shape[2], bool))


def _summarise(number: int, table: Mapping[str, np.ndarray], draws: np.ndarray, at_limit: np.ndarray) -> Runs:
    """Return replications that ended after the same number of draws."""
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=(0, 1))
    mass = _probability(high) - _probability(low)
    return Runs(np.full(at_limit.size, number), at_limit, table["mean"], table["sd"], table["mcse_mean"], mass)


def _probability(values: np.ndarray) -> np.ndarray:
    """Return the posterior probability below each value, (replication, quantity), in closed form.

    Half the squared radius of a standard normal in two dimensions is exponential; the log density is its negative.
    """
    return np.concatenate([ndtr(values[:, :DIMENSION]), np.exp(np.minimum(values[:, DIMENSION:], 0.0))], axis=1)


def measure(setting: Setting) -> Iterator[dict[str, object]]:
    """Yield the rows of the table: one stopped and one fixed for each kind of chain, rule and quantity.

    Columns: `chains`, `rule`, `quantity`, `ended` (by the rule, or at a fixed number), `replications`; `draws`, the mean
    number per chain, and `draws_sd`; `at_limit`, the share of replications that the rule did not end; `coverage` of the
    90% interval of the mean, mean +- 1.645 standard errors; `bias_mean` and `bias_sd` in posterior deviations; `error`,
    the root mean square error of the mean, `mcse`, the root mean square of the reported errors, and their ratio; `mass`,
    the posterior probability between the 5% and the 95% quantile of the draws. `*_se` are standard errors over
    replications. `*_change` are the values under the rule minus the fixed ones; both come from the same chains, so that
    the difference has a smaller error. They are None in rows that did not end by the rule.
    """
    for speed, (chains, steps) in enumerate(SPEEDS.items()):
        longest = max(limits[speed] for limits in setting.limits.values())
        draws = make_draws(setting.replications, longest, steps, setting.seed)
        for name, rule in RULES.items():
            mine = draws[:, : setting.limits[name][speed]]
            stopped = stop_runs(mine, rule)
            fixed = _run_fixed(mine, round(float(stopped.num_draws.mean())))
            for quantity, part in QUANTITIES.items():
                about = {"chains": chains, "rule": name, "quantity": quantity}
                one, other = _of_runs(stopped, part), _of_runs(fixed, part)
                changes = _with_errors({f"{column}_change": one[column] - other[column] for column in one})
                yield {**about, "ended": "rule", **_row(stopped, part), **changes}
                yield {**about, "ended": "fixed", **_row(fixed, part), **dict.fromkeys(changes)}


def _of_runs(runs: Runs, part: slice) -> dict[str, np.ndarray]:
    """Return the measures of each replication, (replication,), averaged over the coordinates of a quantity."""
    error = runs.mean[:, part] - TRUE_MEAN[part]
    values = {
        "coverage": np.abs(error) <= QUANTILE * runs.mcse[:, part],
        "bias_mean": error / TRUE_SD,
        "bias_sd": runs.sd[:, part] - TRUE_SD,
        "mass": runs.mass[:, part],
    }
    return {name: value.mean(axis=1, dtype=np.float64) for name, value in values.items()}


def _with_errors(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the mean over replications of each measure, and its standard error."""
    found: dict[str, float] = {}
    for name, each in values.items():
        found |= {name: float(each.mean()), f"{name}_se": float(each.std(ddof=1) / np.sqrt(len(each)))}
    return found


def _row(runs: Runs, part: slice) -> dict[str, float]:
    """Return the numbers of one row."""
    errors = runs.mean[:, part] - TRUE_MEAN[part], runs.mcse[:, part]
    actual, reported = (float(np.sqrt((v**2).mean())) for v in errors)
    return {
        "replications": len(runs.num_draws),
        "draws": float(runs.num_draws.mean()),
        "draws_sd": float(runs.num_draws.std(ddof=1)),
        "at_limit": float(runs.at_limit.mean()),
        **_with_errors(_of_runs(runs, part)),
        "error": actual,
        "mcse": reported,
        "mcse_over_error": reported / actual,
    }
