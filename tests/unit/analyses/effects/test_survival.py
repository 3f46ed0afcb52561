"""Survival of censored times: Kaplan and Meier's estimate by hand, and the mean over rows in closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.effects.survival import kaplan_meier, survival_of
from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.views import prepared
from bayesmesh.models.glm.model import Glm, Options
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import open_posterior


def test_kaplan_and_meier_s_estimate_is_that_by_hand() -> None:
    times = np.array([6.0, 6.0, 6.0, 6.0, 7.0, 9.0, 10.0, 10.0, 11.0, 13.0])
    is_event = np.array([1, 1, 1, 0, 1, 0, 1, 0, 0, 1], bool)
    found = kaplan_meier(times, is_event, np.array([5.0, 6.0, 8.0, 10.5, 13.0]))
    np.testing.assert_allclose(found, [1, 7 / 10, 7 / 10 * 5 / 6, 7 / 10 * 5 / 6 * 3 / 4, 0])


@pytest.mark.parametrize(
    ("code", "further"),
    [(1.0, {}), (-1.0, {}), (1.0, {"truncated": {"lower": "entry"}}), (1.0, {"weights": "copies"})],
    ids=["right", "left", "delayed entry", "weights"],
)
def test_survival_is_the_mean_over_rows_and_only_plain_right_censoring_has_an_estimate(
    tmp_path: Path, code: float, further: dict[str, Any]
) -> None:
    x, y = np.linspace(-1, 1, 40), np.linspace(0.1, 4, 40)
    layout, data = ExperimentLayout(tmp_path, "one"), DataLayout(tmp_path, "data", "all")
    columns = {"y": y, "x": x, "status": code * (np.arange(40) % 3 == 0), "entry": y / 2, "copies": np.r_[1:41] / 20}
    shard(Dataset(columns), DataSettings(), data)
    options = Options(formula="y ~ x", family="exponential", censored="status", **further)
    shards = prepared(data.shards, lambda spec, read: Glm.prepare(options, spec, read))
    group = open_group(layout.posterior, "w").create_group("posterior")
    write_array(group, "intercept", np.full((2, 50), 0.5), (CHAIN, DRAW))
    write_array(group, "coefficients", np.full((2, 50, 1), 0.7), (CHAIN, DRAW, "c"))
    spec = shards.spec("float32")
    (found,) = survival_of(BoundModel(Glm(options, spec), spec, shards), open_posterior(layout.posterior))
    at, of_model = np.array(found["at"]), found["series"][0]
    assert [each["label"] for each in found["series"]] == [
        "model",
        *(["Kaplan-Meier"] if code > 0 and not further else []),
    ]
    assert at[0] == 0
    weights = columns["copies"] if "weights" in further else None
    wanted = np.average(np.exp(-at[:, None] / np.exp(0.5 + 0.7 * x)), axis=1, weights=weights)
    for name in ("mean", "low", "high"):
        np.testing.assert_allclose(of_model[name], wanted, rtol=1e-4)
    assert found["column"] == "y"
