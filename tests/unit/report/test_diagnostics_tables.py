"""Marking of summaries, the order of the worst, ranks, facts and formats."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.figures import formats
from bayesmesh.report.background_section import dump_settings
from bayesmesh.report.diagnostics_tables import Coordinate, read_least_efficient, read_summary, worst_first
from bayesmesh.report.fact_rows import list_facts
from bayesmesh.report.report_convergence import draw_ranks, rank_reach
from bayesmesh.report.report_draws import rank_difference, thin_by_extremes
from bayesmesh.store.layout import ExperimentLayout


def coordinate(variable: str, r_hat: float, ess: float = 1000.0) -> Coordinate:
    return Coordinate(variable, (0,), 0.0, 1.0, 0.01, r_hat, ess, ess)


def test_a_latent_that_shares_its_name_with_a_summary_is_told_apart(minimal: Callable[..., ExperimentLayout]) -> None:
    lines = [f"{name},0,,0.1,1.0,0.02,1.002,900,800" for name in ("biases", "weights", "biases")]
    found = read_summary(minimal(summary="\n".join(lines)).summary, 2)
    assert [(c.variable, c.is_summary) for c in found] == [("biases", True), ("weights", True), ("biases", False)]


def test_the_least_efficient_coordinates_come_first(tmp_path: Path) -> None:
    path = tmp_path / "efficiency.csv"
    assert read_least_efficient(path, 2) == []
    lines = ["a,0,,900,0.05,800,0.55", "b,1,elm,700,0.5,90,0.95", "c,,,80,0.95,600,0.05", "d,,,,,,"]
    path.write_text("\n".join(["variable,index,label,ess_quantile,quantile,ess_local,interval", *lines]) + "\n")
    found = read_least_efficient(path, 2)
    assert [each.label for each in found] == ["c", "b[elm]"]
    assert (found[1].ess_local, found[1].interval) == (90, 0.95)
    assert math.isnan(found[0].nested_r_hat)


def test_a_coordinate_bears_the_names_of_levels_where_it_has_them(minimal: Callable[..., ExperimentLayout]) -> None:
    layout = minimal(summary='b_species,1,"elm, wild",0.1,1.0,0.02,1.002,900,800')
    (found,) = read_summary(layout.summary, 1)
    assert (found.label, found.numbered, found.index) == ("b_species[elm, wild]", "b_species[1]", (1,))


def test_what_is_not_a_number_is_the_worst() -> None:
    rows = [coordinate("a", 1.1), coordinate("b", math.nan), coordinate("c", 1.2, 9.0), coordinate("d", 1.2, 5.0)]
    assert [c.variable for c in worst_first(rows)] == ["b", "d", "c", "a"]


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


@pytest.mark.parametrize("draws", [np.zeros((1, 50)), np.full((2, 50), np.nan), np.zeros((2, 2))])
def test_there_is_no_rank_plot_without_chains_to_compare(draws: np.ndarray) -> None:
    assert rank_difference(draws) is None


def test_constant_draws_have_a_flat_rank_plot() -> None:
    found = rank_difference(np.ones((3, 40)))
    assert found is not None
    assert np.abs(found.difference).max() == 0


def test_thinning_keeps_every_extreme_and_leaves_gaps_out() -> None:
    values = np.random.default_rng(0).normal(size=10_000)
    values[[17, 5000]] = [40.0, -30.0]
    values[3] = np.nan
    at, kept = thin_by_extremes(values, 100)
    assert at.size == 200
    assert (kept.max(), kept.min()) == (40.0, -30.0)
    assert (np.diff(at) > 0).all()


def test_facts_are_bounded_and_in_words() -> None:
    facts = dict(
        list_facts(
            {"a": {"b": None, "peak_bytes": 3 << 40}, "n": 10**21, "ok": True, "x": float("nan"), "t": "y" * 999}
        )
    )
    assert facts["a · b"] == "not recorded"
    assert facts["a · peak"] == "3.0 TiB"
    assert facts["n"] == "1.00 × 10²¹"
    assert facts["ok"] == "yes"
    assert facts["x"] == "not a number"
    assert facts["t"].endswith("(999 characters)")
    assert len(list_facts({str(n): n for n in range(10_000)})) <= 201
    *_, last, rest = list_facts({"files": [{"rows": n} for n in range(23)]})
    assert (last, rest) == (("files 20 · rows", "19"), ("files", "3 more: see the file"))


@pytest.mark.parametrize(
    "format_fn", [formats.real, formats.count, formats.quantity, formats.duration, formats.size, formats.share]
)
def test_every_format_has_words_and_takes_huge_numbers(format_fn: Callable[[float | None], str]) -> None:
    assert format_fn(None) == "not recorded"
    assert format_fn(math.nan) == "not a number"
    assert format_fn(-math.inf) == "−infinite"
    for value in (0, 0.0, 1e-300, 1e300, 10**18):
        assert format_fn(value)
        assert "nan" not in format_fn(value)


def test_settings_that_yaml_does_not_know_are_written_as_text() -> None:
    assert dump_settings({"path": ExperimentLayout, "when": {1: "é"}}).endswith("when:\n  '1': é\n")


def test_the_worst_few_are_the_first_of_all() -> None:
    every = [coordinate(f"x{i}", r_hat) for i, r_hat in enumerate([1.0, math.nan, 1.2, 1.1])]
    assert worst_first(every, 2) == worst_first(every)[:2]
