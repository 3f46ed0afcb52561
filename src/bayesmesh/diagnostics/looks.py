"""Looks at chains that are still running: when to look, and whether what is seen meets the targets.

A run that ends when a noisy estimate of its precision says so is ended too early more often than too late. How much that
is worth is measured by `bayesmesh study stopping`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesmesh.config.stop_settings import StopSettings
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.coordinates import coordinate_index

__all__ = ["judge_look", "look_numbers", "within"]

TARGETS = (("min_ess_bulk", "ess_bulk"), ("min_ess_tail", "ess_tail"), ("max_r_hat", "r_hat"))
"""Key of the rule, and the statistic that it bounds, over all summaries judged."""


def look_numbers(first: int, growth: float, last: int) -> list[int]:
    """Return the draws at which one looks: ``first * growth**k``, rounded, up to `last`.

    They depend on no segment, commit or clock: a run that is cut anywhere takes the same looks.

    >>> look_numbers(100, 1.5, 600), look_numbers(1, 1.1, 4)
    ([100, 150, 225, 338, 506], [1, 2, 3, 4])
    """
    numbers: list[int] = []
    power = 0
    while (number := int(first * growth**power + 0.5)) <= last:
        if not numbers or number > numbers[-1]:
            numbers.append(number)
        power += 1
    return numbers


def within(values: np.ndarray, target: float, *, is_upper: bool) -> np.ndarray:
    """Return where values meet a target; one that is not a number, or infinite, never does.

    >>> within(np.array([1.0, np.nan, 2.0, np.inf]), 1.5, is_upper=False)
    array([False, False,  True, False])
    """
    return np.isfinite(values) & (values <= target if is_upper else values >= target)


def judge_look(draws: Mapping[str, np.ndarray], rule: StopSettings) -> list[dict[str, Any]]:
    """Hold the targets of a rule against the draws so far.

    Args:
        draws: summary -> (chain, draw, ...), of what the rule names; what is left out is not judged.
        rule: targets and summaries.

    Returns:
        One entry per target that is about one of the summaries at least, strict JSON: `name`, `target`, the worst `value`
        (None where it is not finite), `where` that is, and `is_met`. With fewer than four draws, or one chain for R-hat,
        there are no values, and nothing is met.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, for the statistics; Flegal, Haran and Jones 2008, "Markov chain Monte
        Carlo: can we trust the third significant figure?", doi:10.1214/08-STS257, for stopping at a standard error.

    >>> x = np.random.default_rng(0).normal(size=(4, 200))
    >>> judge_look({"x": x}, StopSettings(min_ess_bulk=1e6))[0]["is_met"]
    False
    """
    tables = {name: convergence_table(v.reshape(*v.shape[:2], -1)) for name, v in draws.items()}
    shapes = {name: v.shape[2:] for name, v in draws.items()}
    entries = []
    for key, statistic in TARGETS:
        target = getattr(rule, key)
        values = {name: t[statistic] for name, t in tables.items() if rule.summaries is None or name in rule.summaries}
        if target is not None and values:
            entries.append(_entry(key, target, values, shapes, is_upper=key.startswith("max")))
    for name, target in sorted((rule.max_mcse or {}).items()):
        if name not in tables:
            continue
        values = {name: tables[name]["mcse_mean"]}
        entries.append(_entry(f"max_mcse.{name}", target, values, shapes, is_upper=True))
    return entries


def _entry(
    key: str,
    target: float,
    values: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    is_upper: bool,
) -> dict[str, Any]:
    """Return one target with the worst value of all coordinates: the first that is not finite, where there is one."""
    every = np.concatenate(list(values.values()))
    entry = {"name": key, "target": target, "value": None, "where": "", "is_met": False}
    if every.size == 0:
        return entry
    is_odd = ~np.isfinite(every)
    worst = int(is_odd.argmax()) if is_odd.any() else int(every.argmax() if is_upper else every.argmin())
    starts = np.cumsum([0, *(part.size for part in values.values())])
    owner = int(np.searchsorted(starts, worst, side="right")) - 1
    name = list(values)[owner]
    index = coordinate_index(worst - int(starts[owner]), shapes[name])
    return {
        **entry,
        "value": None if is_odd.any() else float(every[worst]),
        "where": f"{name}[{index}]" if index else name,
        "is_met": bool(within(every, target, is_upper=is_upper).all()),
    }
