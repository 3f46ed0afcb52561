"""Build the section on the stopping rule: statistics at each look, reason for stopping, cost of the looks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import FAIL, MUTED, NUM_SERIES, Panel, draw, log_axis, series
from bayesmesh.errors import StoreError
from bayesmesh.report.opening import part
from bayesmesh.store.chains.manifests import Look, StopRecord, TargetEntry
from bayesmesh.store.layout import ExperimentLayout, group_name
from bayesmesh.store.records.checked import read_checked

LABELS = {"min_ess_bulk": "Bulk ESS", "min_ess_tail": "Tail ESS", "max_r_hat": "R-hat"}

REASONS = {
    "met": "the look at {draws} draws met every target",
    "draws": "no look met every target before the limit of {draws} draws (sampling.draws)",
    "seconds": "the time limit of {seconds} (sampling.stop.max_seconds) was reached after {draws} draws",
}


def build_stopping(layout: ExperimentLayout, config: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the content of ``stopping.html``; None if the experiment has no rule or no chain group has ended under one.

    Args:
        layout: files of the experiment, with the manifests of the chain groups.
        config: whole configuration of the experiment, plain values.

    Returns:
        ``sentence``, the number of draws and the reason for stopping; ``groups``, remarks on several chain groups;
        ``cost``, the time of the looks; ``targets``, the heading of each column; ``rows``, the looks of the group with
        the fewest draws; ``panels``, one per target.

    Raises:
        StoreError: a manifest is damaged.
    """
    sampling = part(config, "sampling")
    if sampling.get("stop") is None:
        return None
    names = [group_name(group) for group in range(cast(int, sampling.get("chain_groups", 1)))]
    stops = {name: _read(layout, name) for name in names if layout.sampled(name).exists()}
    found = {name: stop for name, stop in stops.items() if stop is not None}
    if not found:
        return None
    decider = min(found, key=lambda name: found[name]["num_draws"])
    mine = found[decider]
    targets = _targets(list(found.values()))
    return {
        "sentence": _sentence(decider, mine, is_alone=len(found) == 1),
        "groups": _groups_text(found, decider) if len(found) > 1 else "",
        "cost": _cost_text(list(found.values())),
        "targets": [_heading(target) for target in targets],
        "rows": [_row(look, targets) for look in mine["looks"]],
        "panels": [_draw_target(f"stopping-{n}", target, found.values()) for n, target in enumerate(targets)],
    }


def _read(layout: ExperimentLayout, name: str) -> StopRecord | None:
    path = layout.sampled(name)
    stop: StopRecord | None = read_checked(path).get("stop")
    if stop is None:
        return None
    if not isinstance(stop, dict) or not {"looks", "num_draws", "reason", "rule"} <= stop.keys():
        raise StoreError(f"{path}: the record of the stopping rule is incomplete", "run the sample stage again")
    return stop


def _sentence(name: str, stop: StopRecord, *, is_alone: bool) -> str:
    reason = REASONS[stop["reason"]].format(
        draws=formats.count(stop["num_draws"]), seconds=_limit_text(stop["rule"].get("max_seconds"))
    )
    where = "" if is_alone else f" of {name}"
    return f"Sampling{where} ended at {formats.count(stop['num_draws'])} draws per chain: {reason}."


def _limit_text(seconds: object) -> str:
    return formats.duration(seconds) if isinstance(seconds, int | float) else formats.NOT_RECORDED


def _groups_text(found: Mapping[str, StopRecord], decider: str) -> str:
    words = {"met": "by its targets", "draws": "at the limit on draws", "seconds": "at the time limit"}
    ended = Counter(stop["reason"] for stop in found.values())
    how = ", ".join(f"{number} {words[reason]}" for reason, number in sorted(ended.items()))
    most = max(stop["num_draws"] for stop in found.values())
    return (
        f"Each of {len(found)} chain groups stopped by itself ({how}). The posterior keeps as many draws as the shortest"
        f" group, {decider}; the longest has {formats.count(most)}. The table shows {decider}."
    )


def _cost_text(stops: Sequence[StopRecord]) -> str:
    spent = sum(float(stop.get("look_seconds", 0.0)) for stop in stops)
    sampled = sum(float(stop.get("sampling_seconds", 0.0)) for stop in stops)
    share = f" ({formats.share(spent / sampled)} of the time for the draws)" if sampled > 0 else ""
    return f"All looks together took {formats.duration(spent)}{share}, in parallel with sampling."


def _label(target: TargetEntry) -> str:
    name = str(target["name"])
    return LABELS.get(name, f"MCSE of {name.partition('.')[2]}")


def _heading(target: TargetEntry) -> str:
    sign = "≥" if str(target["name"]).startswith("min") else "≤"
    return f"{_label(target)} {sign} {formats.real(target['target'])}"


def _targets(stops: Sequence[StopRecord]) -> list[TargetEntry]:
    """Return every target in the order of the longest look, because a look may skip some."""
    looks = [look["targets"] for stop in stops for look in stop["looks"]]
    found = {target["name"]: target for targets in looks for target in targets}
    longest = [target["name"] for target in max(looks, key=len, default=[])]
    return [found[name] for name in sorted(found, key=lambda n: longest.index(n) if n in longest else len(longest))]


def _row(look: Look, targets: Sequence[TargetEntry]) -> dict[str, Any]:
    """Return a look with a cell for each target: the worst value, and whether the target was met."""
    seen = {target["name"]: target for target in look["targets"]}
    return {**look, "cells": [_cell(seen.get(target["name"])) for target in targets]}


def _cell(target: TargetEntry | None) -> tuple[str, bool]:
    if target is None:
        return "not evaluated", False
    value = math.nan if target["value"] is None else target["value"]
    return formats.r_hat(value) if target["name"] == "max_r_hat" else formats.real(value, 5), bool(target["is_met"])


def _line(stop: StopRecord, name: str) -> list[tuple[float, float]]:
    """Return number of draws and value of one target for each look that evaluated it; NaN for a missing value."""
    found = [(k["draws"], t["value"]) for k in stop["looks"] for t in k["targets"] if t["name"] == name]
    return [(float(draws), math.nan if value is None else float(value)) for draws, value in found]


def _draw_target(name: str, target: TargetEntry, stops: Iterable[StopRecord]) -> Panel:
    """Draw the worst value of a statistic at each look, with one line per chain group, and its target."""
    label, limit, is_upper = _label(target), float(target["target"]), str(target["name"]).startswith("max")

    def plot(axes: Axes) -> None:
        for position, stop in enumerate(stops):
            draws, values = np.array(_line(stop, target["name"]), dtype=float).reshape(-1, 2).T
            colour = series(position) if position < NUM_SERIES else MUTED
            axes.plot(draws, values, color=colour, marker="o", markersize=3, linewidth=1.2)
        axes.axhline(limit, color=FAIL, linewidth=1.4, linestyle=(0, (4, 2)))
        axes.set_xscale("log")
        log_axis(axes.xaxis)
        axes.set_xlabel("draws per chain at the look")

    side = "below" if is_upper else "above"
    note = f"Worst value at each look; the target is met at or {side} the dashed line."
    label_text = f"{label} at each look, target {limit:.6g}"
    return draw(name, plot, size=(340, 200), label=label_text, title=label, note=note)
