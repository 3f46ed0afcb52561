"""Decide when to look at chains that are still running, and whether the draws so far meet the targets.

A run that stops on a noisy estimate of its own precision stops too early more often than too late: decision
record 0015 has the measured effect.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Real

from bayesmesh.config.blocks import StopSettings
from bayesmesh.diagnostics.convergence import convergence_table, within, worst_position
from bayesmesh.store.chains.manifests import TargetEntry
from bayesmesh.store.posterior.axes import NamedAxes
from bayesmesh.store.posterior.coordinates import coordinate_indices, coordinate_labels

TARGETS = (("min_ess_bulk", "ess_bulk"), ("min_ess_tail", "ess_tail"), ("max_r_hat", "r_hat"))
"""Key of the rule, and the statistic that it bounds, over all monitored summaries."""


def look_numbers(first: int, growth: float, last: int) -> list[int]:
    """Return the numbers of draws at which to look: ``first * growth**k``, rounded, up to `last`.

    They do not depend on segments, commits or clocks: a run that is interrupted anywhere looks at the same draws.

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


def evaluate_targets(
    draws: Mapping[str, Real[np.ndarray, "chain draw ..."]],
    rule: StopSettings,
    axes: NamedAxes | None = None,
    fixed: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> list[TargetEntry]:
    """Compare the draws so far with the targets of a rule.

    Args:
        draws: summary -> draws, of the summaries that the rule names; others are not monitored.
        rule: targets and summaries.
        axes: names of the entries of summaries, to say where the worst value is.
        fixed: summary -> flat positions of entries that no latent changes, which meet every target.

    Returns:
        One entry per target that concerns at least one of the summaries, as strict JSON. With fewer than four draws, or
        with one chain for R-hat, the value is None and the target is not met.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, for the statistics; Flegal, Haran and Jones 2008, "Markov chain Monte
        Carlo: can we trust the third significant figure?", doi:10.1214/08-STS257, for stopping at a standard error.

    >>> x = np.random.default_rng(0).normal(size=(4, 200))
    >>> evaluate_targets({"x": x}, StopSettings(min_ess_bulk=1e6))[0]["is_met"]
    False
    """
    tables = {name: convergence_table(v.reshape(*v.shape[:2], -1)) for name, v in draws.items()}
    shapes = {name: v.shape[2:] for name, v in draws.items()}
    every = tables if rule.summaries is None else rule.summaries
    wanted = [(key, getattr(rule, key), statistic, every) for key, statistic in TARGETS]
    for name, target in sorted((rule.max_mcse or {}).items()):
        wanted.append((f"max_mcse.{name}", target, "mcse_mean", (name,)))
    entries = []
    for key, target, statistic, names in wanted:
        values = {name: table[statistic] for name, table in tables.items() if name in names}
        for name in values.keys() & fixed.keys():
            values[name][fixed[name]] = 0.0 if key.startswith("max") else sys.float_info.max
        if target is not None and values:
            entries.append(_entry(key, target, values, shapes, axes or {}))
    return entries


def _entry(
    key: str,
    target: float,
    values: Mapping[str, Float[np.ndarray, " _"]],
    shapes: Mapping[str, tuple[int, ...]],
    axes: NamedAxes,
) -> TargetEntry:
    """Return one target with the worst value over all coordinates, or the first non-finite one if there is any."""
    every = np.concatenate(list(values.values()))
    entry: TargetEntry = {"name": key, "target": target, "value": None, "where": "", "is_met": False}
    is_upper = key.startswith("max")
    worst = worst_position(every, is_upper=is_upper)
    if worst is None:
        return entry
    starts = np.cumsum([0, *(part.size for part in values.values())])
    owner = int(np.searchsorted(starts, worst, side="right")) - 1
    name = list(values)[owner]
    place, shape = np.array([worst - int(starts[owner])]), shapes[name]
    named = itertools.zip_longest(axes.get(name, ())[: len(shape)], shape)
    labels = [axis[1] if axis is not None else None for axis, _ in named]
    index = coordinate_labels(place, shape, labels)[0] or coordinate_indices(place, shape)[0]
    return {
        **entry,
        "value": float(every[worst]) if np.isfinite(every[worst]) else None,
        "where": f"{name}[{index}]" if index else name,
        "is_met": bool(within(every, target, is_upper=is_upper).all()),
    }
