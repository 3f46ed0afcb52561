"""The section on convergence: which chains have a colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.diagnostics.mode_gate import modes_gate
from bayesmesh.diagnostics.mode_stays import ModeStays
from bayesmesh.diagnostics.rhat_chance import chance_of_r_hat
from bayesmesh.diagnostics.verdict import GateResult, NumCoordinates, Verdict
from bayesmesh.report.convergence_section import build_convergence
from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.report_draws import DrawReader
from bayesmesh.store.zarr_arrays import open_group, write_array

NUM_CHAINS, NUM_DRAWS = 32, 400


def section(folder: Path, log_density: np.ndarray, level: np.ndarray | None = None) -> dict[str, object]:
    """The section of a run of which nothing is known besides its log density, and a summary."""
    root = open_group(folder / "posterior.zarr", "w")
    write_array(root.create_group("sample_stats"), "lp", log_density, ("chain", "draw"))
    groups, summaries = ModeStays(), []
    if level is not None:
        write_array(root.create_group("summaries"), "level", level, ("chain", "draw"))
        groups.add("level", level[..., None], ["level"], chance_of_r_hat(level[..., None]))
        summaries = [Coordinate("level", (), *[1.0] * 6)]
    gate = modes_gate(log_density) or groups.gate()
    verdict = Verdict(
        verdict="pass" if gate is None else "fail", gates=() if gate is None else (gate,), experiment="x",
        num_chains=NUM_CHAINS, num_draws=NUM_DRAWS, latents={}, bfmi=(), num_divergences=None, divergence_share=0.0,
        acceptance_rate=None, num_coordinates=NumCoordinates(summaries=0, latents=0, listed=0),
    )  # fmt: skip
    return build_convergence(summaries, verdict, DrawReader(folder / "posterior.zarr"), 4, {})


def test_chains_in_another_mode_have_a_colour_among_evenly_spaced_ones(tmp_path: Path) -> None:
    log_density = np.random.default_rng(0).normal(size=(NUM_CHAINS, NUM_DRAWS))
    log_density[[3, 7]] -= [[40.0], [26.0]]
    found = section(tmp_path, log_density)
    assert {3, 7} < set(found["chains"])
    assert len(found["chains"]) == 8
    assert "including chains 3, 7, which lie apart from the others" in found["thinning"]
    (panel,) = found["density"]
    assert all(f'data-chain="{chain}"' in panel.svg for chain in (3, 7))


def test_chains_in_a_mode_of_equal_density_have_a_colour(tmp_path: Path) -> None:
    log_density, level = np.random.default_rng(0).normal(size=(2, NUM_CHAINS, NUM_DRAWS))
    level[[5, 30]] += 20
    found = section(tmp_path, log_density, level)
    assert {5, 30} < set(found["chains"])
    assert "including chains 5, 30, which lie apart from the others" in found["thinning"]


def test_what_misses_the_limit_of_r_hat_comes_before_what_has_a_name(tmp_path: Path) -> None:
    open_group(tmp_path / "posterior.zarr", "w").create_group("sample_stats")
    gate = GateResult(
        name="r_hat", limit=1.01, direction="at most", value=1.7, where="mean[1]", severity="fail", verdict="fail", found="",
    )  # fmt: skip
    verdict = Verdict(
        verdict="fail", gates=(gate,), experiment="x", num_chains=4, num_draws=10, latents={}, bfmi=(), num_divergences=None,
        divergence_share=0.0, acceptance_rate=None, num_coordinates=NumCoordinates(summaries=3, latents=0, listed=3),
    )  # fmt: skip
    values = {"sd": ((), 1.001), "mean": ((1,), 1.7), "logit": ((0,), 1.002)}
    rows = [Coordinate(name, index, 0.0, 1.0, 0.1, r_hat, 900.0, 900.0) for name, (index, r_hat) in values.items()]
    found = build_convergence(rows, verdict, DrawReader(tmp_path / "posterior.zarr"), 4, {})
    assert [item.variable for item in found["worst"][0][1]] == ["mean", "sd", "logit"]


def test_chains_that_agree_are_evenly_spaced(tmp_path: Path) -> None:
    found = section(tmp_path, np.random.default_rng(0).normal(size=(NUM_CHAINS, NUM_DRAWS)))
    assert found["chains"] == [0, 4, 9, 13, 18, 22, 27, 31]
    assert "8 of 32 chains are coloured, evenly spaced" in found["thinning"]
