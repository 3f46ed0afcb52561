"""Marking of summaries, the order of the worst, ranks, facts and formats."""

from __future__ import annotations

import dataclasses
import math
import re
import tracemalloc
from pathlib import Path

import numpy as np

from bayesmesh.report.chain_panels import draw_ranks, rank_reach
from bayesmesh.report.comparison.quantities import by_label
from bayesmesh.report.diagnostics_tables import Coordinate, read_least_efficient, read_summary, worst_first
from bayesmesh.report.draws import rank_difference, thin_by_extremes
from summary_rows import in_columns


def test_the_least_efficient_coordinates_come_first(tmp_path: Path) -> None:
    path = tmp_path / "efficiency.csv"
    assert read_least_efficient(path, 2) == []
    lines = ["a,0,,900,0.05,800,0.55", "b,1,elm,700,0.5,90,0.95", "c,,,80,0.95,600,0.05", "d,,,,,,"]
    path.write_text("\n".join(["variable,index,label,ess_quantile,quantile,ess_local,interval", *lines]) + "\n")
    found = read_least_efficient(path, 2)
    assert [each["label"] for each in found] == ["c", "b[elm]"]
    assert (found[1]["ess_local"], found[1]["interval"]) == (90, 0.95)
    assert math.isnan(found[0]["nested_r_hat"])


def test_rank_panels_that_are_compared_share_one_scale() -> None:
    rng = np.random.default_rng(5)
    draws = [rng.normal(size=(4, 300)) + shift * np.arange(4)[:, None] for shift in (0.0, 3.0)]
    found = [rank_difference(values) for values in draws]
    reach = rank_reach([*found, None])
    assert reach == 1.15 * max(np.abs(each.difference).max() for each in found if each)
    panels = [draw_ranks(f"ranks-{n}", each, "x", [0, 1], reach) for n, each in enumerate(found) if each]
    ticks = [re.findall(r">(\N{MINUS SIGN}?0\.\d+)</text>", panel.svg) for panel in panels]
    assert ticks[0] == ticks[1] != []
    assert rank_reach([]) > 0


def test_rank_band_holds_chains_that_agree_and_shows_one_that_does_not(demo: object) -> None:
    rng = np.random.default_rng(5)
    outside = 0
    for _ in range(200):
        found = rank_difference(demo.autoregressive(rng, (4, 300), 0.5))  # type: ignore[attr-defined]
        assert found is not None
        outside += bool(np.abs(found.difference).max() > found.band)
    # 5 % of 200 are 10 at most by construction; 20 leaves room for the estimated effective sample size.
    assert outside <= 20
    draws = demo.autoregressive(rng, (4, 300), 0.5)  # type: ignore[attr-defined]
    draws[3] += 3
    stuck = rank_difference(draws)
    assert stuck is not None
    assert np.abs(stuck.difference[3]).max() > 3 * stuck.band


def test_thinning_keeps_every_extreme_and_leaves_gaps_out() -> None:
    values = np.random.default_rng(0).normal(size=10_000)
    values[[17, 5000]] = [40.0, -30.0]
    values[3] = np.nan
    at, kept = thin_by_extremes(values, 100)
    assert at.size == 200
    assert (kept.max(), kept.min()) == (40.0, -30.0)
    assert (np.diff(at) > 0).all()


def coordinate(variable: str, r_hat: float, ess: float = 1000.0) -> Coordinate:
    return Coordinate(variable, (0,), 0.0, 1.0, -1.6, 1.6, 0.01, r_hat, ess, ess)


def test_what_is_not_a_number_is_the_worst() -> None:
    rows = [coordinate("a", 1.1), coordinate("b", math.nan), coordinate("c", 1.2, 9.0), coordinate("d", 1.2, 5.0)]
    assert [c.variable for c in worst_first(in_columns(rows))] == ["b", "d", "c", "a"]


def test_millions_of_coordinates_are_columns_and_not_objects(tmp_path: Path) -> None:
    path, num_rows = tmp_path / "summary.csv", 20_000
    rows = "".join(f'b,"{n},0","level {n},slope",{n},1,-1,3,0.1,1.01,400,300\n' for n in range(num_rows))
    path.write_text("variable,index,label,mean,sd,q5,q95,mcse_mean,r_hat,ess_bulk,ess_tail\n" + rows)
    read_summary(path, 1)
    tracemalloc.start()
    try:
        found = read_summary(path, 1, {"b": "slopes"})
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / num_rows < 300, "an object for each takes more than 700 bytes"
    last = found[-1]
    assert (last.label, last.index, last.mean, last.is_summary) == (
        "slopes[level 19999,slope]",
        (19_999, 0),
        19_999,
        False,
    )
    assert [item.is_summary for item in found[:2]] == [True, False]
    assert [len(each) for each in found.arrays().values()] == [1, num_rows - 1]


def test_other_units_turn_intervals_round() -> None:
    rows = in_columns([coordinate("a", 1.0), coordinate("b", 1.0)]).in_units({"b": -10.0})
    assert [(c.scale, c.q5, c.q95, c.sd) for c in rows] == [(1.0, -1.6, 1.6, 1.0), (-10.0, -16.0, 16.0, 10.0)]
    assert coordinate("b", 1.0).scaled(-10.0) == rows[1]


def test_labels_are_those_of_the_coordinates_and_summaries_come_before_latents() -> None:
    latent = dataclasses.replace(coordinate("b", 1.0), is_summary=False, mean=3.0)
    named = dataclasses.replace(coordinate("a", 1.0), names="elm,x", shown="slope")
    rows = in_columns([named, coordinate("b", 1.0), dataclasses.replace(coordinate("c", 1.0), index=()), latent])
    assert rows.labels() == [item.label for item in rows] == ["slope[elm,x]", "b[0]", "c", "b[0]"]
    assert by_label(rows)["b[0]"].is_summary
