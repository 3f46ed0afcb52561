"""The diagnose stage on a small posterior.zarr: files, choice of coordinates, damaged stores."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics import convergence
from bayesmesh.diagnostics import summary as diagnostic_summary
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.diagnostics.summary import SUMMARY_COLUMNS
from bayesmesh.report.diagnostics_tables import read_summary, worst_first
from bayesmesh.report.opening import say_scope
from bayesmesh.store.arrays import create_array, open_group, write_array, write_texts
from bayesmesh.store.layout import FIXED, ExperimentLayout
from posterior_groups import CHAINS, DRAWS, drawn, good_posterior, write


@pytest.fixture
def layout(tmp_path) -> ExperimentLayout:
    return ExperimentLayout(tmp_path / "results", "digits")


@pytest.fixture
def run(tmp_path, layout):
    def diagnosed(groups, gates: GateSettings | None = None):
        content = diagnose(write(tmp_path / "posterior.zarr", groups), gates or GateSettings(), layout)
        return content.model_dump(mode="json"), pd.read_csv(layout.summary, dtype={"index": str}, keep_default_na=True)

    return diagnosed


def strict_json(path: Path) -> dict:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_round_trip(run, layout) -> None:
    groups = good_posterior()
    content, table = run(groups)
    assert content["verdict"] == "pass"
    assert strict_json(layout.verdict) == content
    assert content["experiment"] == "digits"
    assert (content["num_chains"], content["num_draws"]) == (CHAINS, DRAWS)
    assert content["num_coordinates"] == {"summaries": 7, "latents": 36, "listed": 43, "fixed": 0}
    assert content["latents"] == {"bias": {"total": 1, "listed": 1}, "weights": {"total": 35, "listed": 35}}
    assert (content["num_divergences"], content["acceptance_rate"]) == (0, 0.75)
    assert len(content["bfmi"]) == CHAINS
    assert tuple(table.columns) == SUMMARY_COLUMNS
    assert table["variable"].drop_duplicates().tolist() == ["log_density", "logits", "bias", "weights"]
    for group in ("summaries", "posterior"):
        for name, values in groups[group].items():
            expected = convergence_table(values.reshape(CHAINS, DRAWS, -1))
            rows = table[table["variable"] == name]
            for statistic, column in expected.items():
                np.testing.assert_array_equal(rows[statistic], column)
    assert [path.name for path in layout.summary.parent.iterdir() if path.name.startswith(".")] == []


def test_fixed_entries_are_left_out_of_the_gates_and_stuck_ones_are_not(tmp_path, layout) -> None:
    groups = good_posterior()
    groups["summaries"]["logits"][..., 0, 0] = 1.0
    groups["summaries"]["logits"][..., 0, 1] = 1.0 + 1e-7 * drawn(5)
    path = write(tmp_path / "posterior.zarr", groups)
    assert diagnose(path, GateSettings(), layout).gate("r_hat").where == "logits[0,0]"
    open_group(path, "a")["summaries/logits"].attrs[FIXED] = [0, 1]
    found = diagnose(path, GateSettings(), layout)
    assert (found.verdict, found.num_coordinates.fixed) == ("pass", 2)
    table = pd.read_csv(layout.summary)
    assert (table["ess_bulk"].isna().sum(), len(table)) == (2, 43)
    coordinates = read_summary(layout.summary, found.num_coordinates.summaries)
    assert [each.label for each in worst_first(coordinates[:7])[-2:]] == ["logits[0,0]", "logits[0,1]"]
    assert "5 monitored quantities. They leave out 2 others, which no latent changes." in say_scope(found, coordinates)


def test_names_of_levels_stand_in_the_table_and_in_the_verdict(tmp_path, layout) -> None:
    path = write(tmp_path / "posterior.zarr", good_posterior())
    group = open_group(path, "a")["summaries"]
    effects = drawn(5, 2) * np.array([1, 0], np.float32)
    write_array(group, "effects", effects, ("chain", "draw", "site"))
    write_texts(group, "site", ["north, far", "Köln"], ["site"])
    verdict = diagnose(path, GateSettings(), layout)
    table = pd.read_csv(layout.summary, dtype=str, keep_default_na=False)
    assert table[table["variable"] == "effects"]["label"].tolist() == ["north, far", "Köln"]
    assert set(table[table["variable"] == "logits"]["label"]) == {""}
    assert verdict.gate("r_hat").where == "effects[Köln]"


def test_latents_are_not_judged(run) -> None:
    groups = good_posterior()
    groups["posterior"]["weights"][0] += 10
    assert run(groups)[0]["verdict"] == "pass"
    groups["summaries"]["logits"][0, :, 2, 1] += 10
    content, _ = run(groups)
    assert content["verdict"] == "fail"
    assert content["gates"][0]["where"] == "logits[2,1]"


def test_a_chain_that_does_not_move_fails_and_one_that_is_lost_too(run) -> None:
    groups = good_posterior()
    for values in (*groups["summaries"].values(), *groups["posterior"].values()):
        values[3] = values[3, 0]
    content, _ = run(groups)
    assert (content["verdict"], content["gates"][0]["name"]) == ("fail", "movement")
    assert "chain 3 is constant over all 401 draws" in content["gates"][0]["message"]
    groups["posterior"]["weights"][3] = drawn(9, 5, 7)[3]
    assert "movement" not in [gate["name"] for gate in run(groups)[0]["gates"]]
    groups["summaries"]["log_density"][3] = -np.inf
    content, _ = run(groups)
    assert (content["verdict"], content["gates"][0]["name"]) == ("fail", "finite")
    assert "chain 3 from draw 0 on (log_density)" in content["gates"][0]["message"]


def test_divergences_and_missing_statistics(run) -> None:
    groups = good_posterior()
    groups["sample_stats"]["diverging"][2, :5] = True
    content, _ = run(groups)
    assert content["num_divergences"] == 5
    assert content["divergence_share"] == pytest.approx(5 / (CHAINS * DRAWS))
    assert [gate["name"] for gate in content["gates"] if gate["verdict"] == "fail"] == ["divergences"]
    groups["sample_stats"]["divergent_share"] = groups["sample_stats"]["diverging"] / 1000
    content, _ = run(groups)
    # One of 1,000 units may have diverged every time.
    assert (content["verdict"], content["num_divergences"]) == ("fail", 5)
    assert content["divergence_share"] == pytest.approx(0.005 / (CHAINS * DRAWS))
    groups["sample_stats"]["diverging"][2, 1:5] = False
    assert run(groups)[0]["verdict"] == "warn"
    for name in ("energy", "diverging", "divergent_share", "acceptance_rate"):
        del groups["sample_stats"][name]
    content, _ = run(groups)
    assert [gate["name"] for gate in content["gates"] if gate["verdict"] == "fail"] == ["divergences", "bfmi"]
    assert content["divergence_share"] is content["num_divergences"] is content["acceptance_rate"] is None
    assert content["bfmi"] == [None] * CHAINS


def test_memory_follows_the_blocks_and_not_the_posterior(tmp_path, layout, monkeypatch) -> None:
    monkeypatch.setattr(convergence, "_PRIMER_BYTES", 0)
    monkeypatch.setattr(convergence, "BLOCK_BYTES", 2**21)
    monkeypatch.setattr(diagnostic_summary, "READ_BYTES", 2**19)
    path = write(tmp_path / "posterior.zarr", good_posterior())
    shape = (CHAINS, DRAWS, 1200)
    group, dims = open_group(path, "a")["posterior"], ("chain", "draw", "m")
    array = create_array(group, "many", shape, np.float32, dims, chunks=(1, 10, 1200))
    array[...] = np.random.default_rng(0).normal(size=(1, DRAWS, 1)) + np.arange(CHAINS)[:, None, None]
    tracemalloc.start()
    try:
        diagnose(path, GateSettings(), layout, num_threads=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Three blocks, two of them being computed and read, what is read at a time for them, and the working memory of a thread.
    assert peak < 5 * 2**20 < array.nbytes / 1.4


def test_a_crash_while_writing_keeps_the_old_files(tmp_path, run, layout, monkeypatch) -> None:
    groups = good_posterior()
    run(groups)
    before = layout.summary.read_bytes()
    groups["summaries"]["logits"] += 1
    path = write(tmp_path / "posterior.zarr", groups)

    def crash(source: object, target: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="no space left"):
        diagnose(path, GateSettings(), layout)
    assert layout.summary.read_bytes() == before
    assert sorted(path.name for path in layout.summary.parent.iterdir()) == ["summary.csv", "verdict.json"]
