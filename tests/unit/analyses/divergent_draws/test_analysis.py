"""The test of where divergences lie keeps its level for series that depend on their past."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.divergent_draws.analysis import (
    TAIL,
    DivergentDraws,
    find_places,
    p_value_of_shifts,
    read_places,
)
from bayesmesh.analyses.figures.documents import read_csv
from bayesmesh.analyses.options import DivergentDrawsOptions as Options
from bayesmesh.config.declarations import declared
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, ExperimentLayout
from bayesmesh.store.posterior.reader import open_posterior


def series(generator: np.random.Generator, correlation: float, num: int = 2000) -> np.ndarray:
    noise = generator.standard_normal(num) * np.sqrt(1 - correlation**2)
    values = noise / np.sqrt(1 - correlation**2)
    for i in range(1, num):
        values[i] = correlation * values[i - 1] + noise[i]
    return values


@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_p_values_are_uniform_where_divergences_have_nothing_to_do_with_the_latent(correlation: float) -> None:
    generator = np.random.default_rng(8)
    found = []
    for _ in range(100):
        ranks = stats.rankdata(series(generator, correlation)) / 2001
        # Divergences come in runs, as they do in a slow chain.
        is_divergent = series(generator, correlation) > 2
        found.append(p_value_of_shifts(ranks, is_divergent))
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) < 0.05) < 0.12


def test_one_series_that_decides_the_other_is_seen_and_a_constant_one_is_not() -> None:
    ranks = stats.rankdata(series(np.random.default_rng(2), 0.5)) / 2001
    assert p_value_of_shifts(ranks, ranks < 0.02) < 1e-6
    assert p_value_of_shifts(np.full(50, 0.5), np.arange(50) < 3) == 1.0


SHAPE = (4, 500)


def store(folder: Path, diverging: np.ndarray | None, seed: int = 1) -> dict[str, Path]:
    """A funnel of a log scale and three effects, and a latent that has nothing to do with it."""
    generator = np.random.default_rng(seed)
    log_scale = generator.standard_normal(SHAPE)
    latents = {
        "sd": np.exp(log_scale), "effects": np.exp(log_scale)[..., None] * generator.standard_normal((*SHAPE, 3)),
        "other": generator.standard_normal(SHAPE), "constant": np.ones(SHAPE),
    }  # fmt: skip
    layout = ExperimentLayout(folder, "one")
    root = open_group(layout.posterior, "w")
    group = root.create_group("posterior")
    for name, values in latents.items():
        write_array(group, name, values, (CHAIN, DRAW, *(f"{name}_{i}" for i in range(values.ndim - 2))))
    if diverging is not None:
        given = (
            diverging if diverging.dtype == bool else np.argsort(np.argsort(latents["sd"].ravel())).reshape(SHAPE) < 40
        )
        write_array(root.create_group("sample_stats"), "diverging", given, (CHAIN, DRAW))
    files = declared("divergent_draws").files(layout.folder)
    files["pairs.csv"].parent.mkdir()
    find_places(open_posterior(layout.posterior), Options(drawn=200), files)
    return files


def test_divergences_in_a_funnel_are_placed_at_its_neck(tmp_path: Path) -> None:
    files = store(tmp_path, np.zeros(SHAPE))
    table = read_places(files["divergent.csv"])
    assert table.loc[0, ["latent", "end", "share"]].tolist() == ["sd", "low", 1.0]
    by_latent = table.set_index("latent")
    # Effects are near their middle there, and at no end.
    assert by_latent.loc["effects[0]", "share"] < TAIL
    assert by_latent.loc["other", "p_value"] > 0.1
    assert "constant" not in by_latent.index
    assert "sd" in read_csv(files["pairs.csv"], ("first", "second"))[0].cells.values()
    assert sum(row.number("diverging") for row in read_csv(files["draws.csv"], ("diverging", "sd"))) == 40
    assert len(read_csv(files["draws.csv"], ())) == 240
    page = DivergentDraws(Options()).section(files).body
    assert "They gather where sd is small (100% of them, but 10% of the other draws)" in page
    assert "<svg" in page
    assert DivergentDraws(Options()).cell(files) == "divergences where sd is small"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_divergences_anywhere_are_not_placed(tmp_path: Path, seed: int) -> None:
    files = store(tmp_path, np.random.default_rng(seed).random(SHAPE) < 0.03, seed)
    assert "do not gather along any latent" in DivergentDraws(Options()).section(files).body
    assert DivergentDraws(Options()).cell(files) == ""
