"""Populations of chains: those that stay in modes with equal shares agree, and a population that lost a mode does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.diagnostics.gates.populations import as_populations
from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import POPULATIONS, ExperimentLayout

NUM_CHAINS, NUM_DRAWS = 600, 12


def two_modes(shares: list[float]) -> np.ndarray:
    """Return draws (chain, draw) of chains that never leave their mode, 30 standard deviations from the other."""
    rng = np.random.default_rng(0)
    places = [
        np.repeat([0.0, 30.0], [n - round(n * s), round(n * s)]) for s in shares for n in [NUM_CHAINS // len(shares)]
    ]
    mixed = np.concatenate([rng.permutation(each) for each in places])
    return mixed[:, None] + rng.normal(size=(NUM_CHAINS, NUM_DRAWS))


def judged(tmp_path: Path, draws: np.ndarray, num_populations: int) -> Verdict:
    root = open_group(tmp_path / "posterior.zarr", "w")
    lp = -0.5 * (draws - np.where(draws > 15, 30, 0)) ** 2 + 9 * (draws > 15)
    for group, name, values in (
        ("summaries", "x", draws), ("posterior", "x", draws), ("sample_stats", "lp", lp), ("sample_stats", "energy", -lp),
        ("sample_stats", "diverging", np.zeros(draws.shape, bool)),
    ):  # fmt: skip
        write_array(root.require_group(group), name, values, ("chain", "draw"))
    if num_populations:
        root["sample_stats"].attrs[POPULATIONS] = num_populations
    return diagnose(tmp_path / "posterior.zarr", GateSettings(), ExperimentLayout(tmp_path / "results", "modes"))


def test_one_population_in_two_modes_warns_and_says_how_many_to_ask_for(tmp_path: Path) -> None:
    found = judged(tmp_path, two_modes([0.3]), 1)
    assert found.verdict == "warn"
    gate = found.missed[0]
    assert (gate.name, gate.where) == ("populations", "x")
    assert "chain_groups: 4, chains: 2400" in gate.hint
    assert found.missed == (gate,), "R-hat, which does not exist here, is not missed as well"
    assert not any("tempered_smc" in each.message for each in found.gates)
    # Independent chains have no such excuse.
    assert judged(tmp_path, two_modes([0.3]), 0).gate("modes") is not None


def test_a_population_is_one_series_chain_after_chain() -> None:
    draws = np.arange(24).reshape(4, 3, 2)
    assert as_populations(draws, 2)[:, :, 0].tolist() == [[0, 2, 4, 6, 8, 10], [12, 14, 16, 18, 20, 22]]
