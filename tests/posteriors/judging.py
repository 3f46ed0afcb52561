"""Sample a posterior with default settings, give it the verdict that the diagnose stage would, and hold it to its reference."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import programs
from posteriors import POSTERIORS

REFERENCE = Path(__file__).with_name("reference.csv")

MOST_ERRORS, MOST_SD = 5.0, 0.15
"""Errors of a mean in standard errors of both runs, and of a standard deviation in parts of itself, that are right."""


class Judged(NamedTuple):
    """A run.

    Attributes:
        verdict: pass, warn or fail.
        missed: messages of the gates that are missed.
        mean_error: largest, in standard errors.
        sd_error: largest, relative.
        gradients: of a chain.
    """

    verdict: str
    missed: tuple[str, ...]
    mean_error: float
    sd_error: float
    gradients: int

    @property
    def is_right(self) -> bool:
        """Whether means and standard deviations are those of the reference."""
        return self.mean_error < MOST_ERRORS and self.sd_error < MOST_SD


def sample(
    name: str, kernel: str, num_chains: int, seed: int = 3, dtype: str = "float32", **options: Any
) -> programs.Run:
    """Return the run of a posterior, with the default numbers of warmup iterations and draws."""
    from bayesmesh.config.blocks import SamplingSettings

    sampling, case = SamplingSettings(), POSTERIORS[name].case(dtype)
    built = programs.build(
        case, kernel, num_chains=num_chains, num_warmup=sampling.warmup, most_draws=500,
        row_tile=case.spec.num_rows, initial=sampling.initial.model_dump(), **options,
    )  # fmt: skip
    return run(built, sampling.draws, seed)


def run(built: Any, num_draws: int, seed: int) -> programs.Run:
    """Go from finite starts to as many draws."""
    import jax

    from bayesmesh.sampling.program.starts import start_chains

    arguments, warmup = built.arguments(seed), built.program.sampling.warmup
    method = built.program.sampling.initial.method
    how = method, built.program.num_together
    begin = start_chains(built.compiled["initialise"], arguments, built.data, jax.block_until_ready, *how)
    warm, warmup_statistics, _ = built.go(arguments, begin, 0, warmup)
    state, statistics, draws = built.go(arguments, warm, warmup, num_draws)
    return programs.Run(warm, warmup_statistics, state, statistics, draws)


def judge(name: str, run: Any) -> Judged:
    """Assess a run, and compare it with the reference."""
    verdict, missed, table = assess(run)
    return Judged(verdict, missed, *_errors(name, table), gradients_of_a_chain(run))


def assess(run: Any) -> tuple[str, tuple[str, ...], pd.DataFrame]:
    """Return verdict, messages of the gates that are missed, and statistics of all coordinates, as the diagnose stage does."""
    from bayesmesh.config.blocks import GateSettings
    from bayesmesh.diagnostics.convergence import chance_of_r_hat, convergence_table
    from bayesmesh.diagnostics.energy import energies_of
    from bayesmesh.diagnostics.gates.chains import Movement, NonFinite
    from bayesmesh.diagnostics.gates.evaluation import evaluate_gates
    from bayesmesh.diagnostics.gates.geometry import complete_gates
    from bayesmesh.diagnostics.gates.modes import ModeStays, modes_gate
    from bayesmesh.diagnostics.verdict import overall

    statistics = {k: np.moveaxis(v, 0, -1) for k, v in run.statistics.items()}
    summaries = {k: np.moveaxis(v, 0, 1).reshape(*v.shape[1::-1], -1) for k, v in run.draws.items()}
    monitored = summaries | {
        name: statistics[key][..., None] for name, key in (("log_density", "lp"), ("log_likelihood", "log_likelihood"))
    }
    movement, finite, apart, parts = Movement(), NonFinite(), ModeStays(), []
    for latent, draws in monitored.items():
        index = [str(i) for i in range(draws.shape[-1])]
        movement.add(draws)
        finite.add(draws, [f"{latent}[{i}]" for i in index])
        columns = {
            # Corners of Cholesky factors; what ought to move and does not is for `Movement`.
            "is_fixed": (draws == draws[:1, :1]).all(axis=(0, 1)),
            "variable": latent,
            "index": "" if latent.startswith("log_") else index,
            "label": "",
            **convergence_table(draws),
        }
        chance = chance_of_r_hat(draws)
        apart.add(latent, draws, [f"{latent}[{i}]" for i in index], chance)
        parts.append(pd.DataFrame(columns | {"chance": chance}))
    table = pd.concat(parts, ignore_index=True)
    gates = evaluate_gates(
        table, energies_of(statistics, len(statistics["energy"])), ("diverging", "energy"), GateSettings()
    )
    in_modes = modes_gate(statistics["lp"]) or apart.gate()
    blocks = [([f"{k}[{i}]" for i in range(v.shape[-1])], v) for k, v in summaries.items()]
    gates = complete_gates(gates, (finite.gate(), movement.gate(), in_modes), None, statistics["lp"], lambda: blocks)
    return overall(gates), tuple(g.message for g in gates if g.verdict != "pass"), table


def gradients_of_a_chain(run: Any) -> int:
    """Return the gradients of a chain, the mean over chains, of warmup and draws."""
    return round(sum(s["n_steps"].mean() * len(s["n_steps"]) for s in (run.warmup_statistics, run.statistics)))


def _errors(name: str, table: pd.DataFrame) -> tuple[float, float]:
    known = reference()[name]
    mean_error = sd_error = 0.0
    for variable, index, mean, sd, mcse in table[["variable", "index", "mean", "sd", "mcse_mean"]].itertuples(
        index=False
    ):
        if (variable, index) not in known:
            continue
        true_mean, true_sd, true_mcse = known[variable, index]
        mean_error = np.fmax(mean_error, abs(mean - true_mean) / np.hypot(mcse, true_mcse)) if mcse > 0 else np.inf
        sd_error = np.fmax(sd_error, abs(sd / true_sd - 1))
    return float(mean_error), float(sd_error)


@functools.cache
def reference() -> dict[str, dict[tuple[str, str], tuple[float, float, float]]]:
    """Return posterior -> (summary, index) -> mean, standard deviation, and standard error of the mean."""
    found: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {name: {} for name in POSTERIORS}
    with REFERENCE.open() as file:
        for row in csv.DictReader(file):
            known = tuple(float(row[key]) for key in ("mean", "sd", "mcse"))
            found[row["posterior"]][row["summary"], row["index"]] = known
    return found
