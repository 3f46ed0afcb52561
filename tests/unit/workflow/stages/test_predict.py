"""`bayesmesh predict` reads a new table as the experiment's own was read, and predicts from all draws in blocks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import expit

import bayesmesh as bm
from bayesmesh.cli import main
from bayesmesh.config.experiment import experiment_class
from bayesmesh.diagnostics.verdict import NumCoordinates, Verdict, write_verdict
from bayesmesh.errors import DataError
from bayesmesh.store.arrays import open_group
from bayesmesh.workflow.jobs import Job, make_job, write_spec
from bayesmesh.workflow.stages.predict import predict_table
from recording import record_as
from stored_experiment import store_experiment

NUM_ROWS, SHAPE = 60, (2, 150)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """A function of model options and latents to an experiment that has them as its posterior."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(1)
    site = np.array(["bonn", "aachen", "köln"])[generator.integers(0, 3, NUM_ROWS)]
    site[:3] = ["bonn", "aachen", "köln"]
    x, y = generator.normal(5, 2, NUM_ROWS), generator.normal(10, 3, NUM_ROWS)
    alive = np.where(generator.random(NUM_ROWS) < 0.5, "yes", "no")
    table = {
        "y": y, "x": x, "unused": x**2, "site": site, "alive": alive, "count": 3 - np.arange(NUM_ROWS) % 4,
        "most": np.full(NUM_ROWS, 3), "kind": np.where(x > 6, "interval", "none"), "end": y + 1,
        "status": np.where(np.arange(NUM_ROWS) % 3 == 0, "right", "none"),
    }  # fmt: skip

    def train(model: dict[str, Any], latents: dict[str, np.ndarray], **data: Any) -> Job:
        return store_experiment(pd.DataFrame(table), model, latents, **data)

    return train


def test_a_notebook_predicts_a_data_frame_as_the_verb_does(trained: Callable[..., Job]) -> None:
    trained({"formula": "y ~ x + (1 | site)"}, normal_latents())
    frame = pd.DataFrame({"x": [1.0, 9.0], "site": ["bonn", "aachen"]}, index=[7, 8])
    frame.to_csv("new.csv")
    assert main(["predict", "old", "--table", "new.csv", "--interval", "0.5"]) == 0
    found = bm.predict("old", frame, interval=0.5)
    pd.testing.assert_frame_equal(found, pd.read_csv("new-predicted.csv").drop(columns="row").set_index(frame.index))
    frame.loc[8, "site"] = "berlin"
    with pytest.raises(DataError, match="the table, row 2: 'site' is 'berlin'") as raised:
        bm.predict("old", frame)
    assert "new_levels=True" in raised.value.remedy
    assert np.isfinite(bm.predict("old", frame, new_levels=True)).all(axis=None)


def normal_latents() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(2)
    return {
        "intercept": generator.normal(0.2, 0.1, SHAPE), "coefficients": generator.normal(0.5, 0.1, (*SHAPE, 1)),
        "sigma": np.full(SHAPE, 0.4), "sd_site": np.ones((*SHAPE, 1)),
        "effects_site": generator.normal([[-1], [0], [1]], 0.1, (*SHAPE, 3, 1)),
    }  # fmt: skip


CONFIG = {
    "data": {"source": "table", "files": "old.csv", "replicates": "site"}, "model": {"name": "glm", "formula": "y ~ x"},
    "kernel": {"name": "nuts"},
}  # fmt: skip

NORMAL = {"formula": "y ~ x + (1 | site)", "centred": ["site"]}


def test_numbers_are_predicted_in_the_unit_of_the_table_with_two_intervals(
    trained: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    z = normal_latents()
    spec = trained(NORMAL, z, standardise=["y"])
    # Other columns, in another order, levels that appear in another order, and no outcome.
    new = pd.DataFrame({"site": ["köln", "bonn", "köln", "aachen"] * 5, "more": "?", "x": np.linspace(0, 9, 20)})
    new.to_csv("new.csv", index=False)
    assert main(["predict", "old", "--table", "new.csv", "--interval", "0.8"]) == 0
    assert "predictions for 20 rows" in capsys.readouterr().err
    found = pd.read_csv("new-predicted.csv")
    old = pd.read_csv("old.csv")
    place = {"aachen": 0, "bonn": 1, "köln": 2}
    effects = z["effects_site"].reshape(-1, 3)[:, [place[s] for s in new["site"]]]
    # The intercept is that at the mean of the column, and the coefficient one in the unit of the data.
    centred = new["x"].to_numpy() - old["x"].mean()
    line = z["intercept"].reshape(-1, 1) + z["coefficients"].reshape(-1, 1) * centred + effects
    mean = line * old["y"].std(ddof=0) + old["y"].mean()
    assert found["row"].tolist() == list(range(1, 21))
    np.testing.assert_allclose(found["y_mean"], mean.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found["mean_low"], np.quantile(mean, 0.1, axis=0), rtol=1e-5)
    np.testing.assert_allclose(found["mean_high"], np.quantile(mean, 0.9, axis=0), rtol=1e-5)
    # The interval of the outcome is that of the mean and the noise: 300 draws, so within a few of their errors.
    spread = np.sqrt(mean.var(0) + (0.4 * old["y"].std(ddof=0)) ** 2)
    np.testing.assert_allclose((found["y_high"] - found["y_low"]) / spread, 2 * 1.2816, rtol=0.25)
    # Small blocks of rows, and a posterior that is read again for each, give the same but for simulated noise.
    monkeypatch.setattr("bayesmesh.store.posterior.reader.KEPT_BYTES", 0)
    monkeypatch.setattr("bayesmesh.store.posterior.reader.CHUNK_DRAWS", 64)
    monkeypatch.setattr("bayesmesh.workflow.stages.predict.BLOCK_CELLS", 300 * 7)
    predict_table(spec, Path("new.csv"), Path("blocks.csv"), 0.8)
    again = pd.read_csv("blocks.csv")
    pd.testing.assert_frame_equal(again.iloc[:, :4], found.iloc[:, :4])


def test_effects_of_new_levels_are_drawn_from_their_population(
    trained: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    z, shape = normal_latents(), (2, 1000)
    z = {name: np.zeros((*shape, *values.shape[2:])) for name, values in z.items()}
    covariance = np.array([[0.49, 0.21], [0.21, 0.25]])
    sd = np.sqrt(np.diag(covariance))
    factor = np.linalg.cholesky(covariance) / sd[:, None]
    z |= {"sd_site": np.broadcast_to(sd, (*shape, 2)), "correlation_site": np.broadcast_to(factor, (*shape, 2, 2))}
    spec = trained({"formula": "y ~ x + (1 + x | site)"}, z | {"effects_site": np.zeros((*shape, 3, 2))})
    # Rows of known levels between those of a new one, which end in blocks of their own.
    x = [0.0, 1.0, -2.0, 3.0] * 2
    pd.DataFrame({"site": ["ulm", "bonn"] * 3 + ["kiel", "ulm"], "x": x}).to_csv("new.csv", index=False)
    with pytest.raises(DataError, match=r"row 1: 'site' is 'ulm'.*1 other") as caught:
        predict_table(spec, Path("new.csv"), Path("out.csv"), 0.9)
    assert "--new-levels" in caught.value.remedy
    caplog.set_level("INFO", logger="bayesmesh")
    predict_table(spec, Path("new.csv"), Path("out.csv"), 0.9, takes_new_levels=True)
    assert "effects of 2 new levels of 'site'" in caplog.text
    found = pd.read_csv("out.csv")
    is_new = np.array([row != "bonn" for row in pd.read_csv("new.csv")["site"]])
    assert (found.loc[~is_new, ["mean_low", "mean_high"]] == 0).all(axis=None)
    expected = [np.sqrt(np.array([1, v]) @ covariance @ np.array([1, v])) for v in np.array(x)[is_new]]
    # Quantiles of 2,000 draws have a relative error of 3%.
    np.testing.assert_allclose((found["mean_high"] - found["mean_low"])[is_new] / (2 * 1.645), expected, rtol=0.12)
    monkeypatch.setattr("bayesmesh.workflow.stages.predict.BLOCK_CELLS", 2000 * 3)
    predict_table(spec, Path("new.csv"), Path("blocks.csv"), 0.9, takes_new_levels=True)
    pd.testing.assert_frame_equal(pd.read_csv("blocks.csv").iloc[:, :4], found.iloc[:, :4])


def test_classes_are_predicted_with_probabilities_and_their_names(trained: Callable[..., Job]) -> None:
    generator = np.random.default_rng(3)
    z = {"intercept": generator.normal(0.2, 0.3, SHAPE), "coefficients": generator.normal(0.5, 0.1, (*SHAPE, 1))}
    spec = trained({"formula": "alive ~ x", "family": "bernoulli"}, z)
    new = pd.DataFrame({"x": np.linspace(0, 9, 12)})
    new.to_parquet("new.parquet")
    predict_table(spec, Path("new.parquet"), Path("out.csv"), 0.9)
    found = pd.read_csv("out.csv")
    line = z["intercept"].reshape(-1, 1) + z["coefficients"].reshape(-1, 1) * (
        new["x"].to_numpy() - pd.read_csv("old.csv")["x"].mean()
    )
    p = expit(line)
    np.testing.assert_allclose(found["probability[yes]"], p.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found["low[yes]"], np.quantile(p, 0.05, axis=0), rtol=1e-5)
    assert found["alive"].tolist() == np.where(p.mean(0) >= 0.5, "yes", "no").tolist()


def test_a_table_that_does_not_fit_is_refused_with_file_and_row(
    trained: Callable[..., Job], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = trained(NORMAL, normal_latents())
    good = pd.DataFrame({"site": ["bonn", "köln", "aachen"], "x": [1.0, 2.0, 3.0]})
    cases = [
        (
            good.assign(site=["bonn", "köln", "bohn"]),
            r"new\.csv, row 3: 'site' is 'bohn', which the experiment's table",
        ),
        (good.drop(columns="x"), r"new\.csv: no column 'x', on which predictions depend"),
        (good.drop(columns="site"), r"new\.csv: no column 'site', on which predictions depend"),
        (good.assign(x=["1", "2", "many"]), r"new\.csv, row 3: 'x' is not a number but 'many'"),
        (good.assign(x=[1.0, None, 2.0]), r"new\.csv, row 2: 'x' holds no value"),
        (good.assign(x=None), r"new\.csv, row 1: 'x' holds no value, and predictions depend on it"),
        (good.assign(unused=[1.0, 2.0, None]), r"new\.csv, row 3: 'unused' holds no value"),
        (good.rename(columns={"x": "a", "site": "b"}), r"new\.csv: none of the columns"),
    ]
    for table, message in cases:
        table.to_csv("new.csv", index=False)
        with pytest.raises(DataError, match=message):
            predict_table(spec, Path("new.csv"), Path("out.csv"), 0.9)
    remedies = {
        "new.csv": ("x;site\n1;bonn\n", "write commas between the cells"), "new.xlsx": ("x", "save the sheet as CSV, and give that file"),
        "new.data": ("x,site\n1,bonn\n", "give it one of the endings .csv"), "new.jsonl": ("1,bonn\n", "write one object a line"),
    }  # fmt: skip
    for name, (text, remedy) in remedies.items():
        Path(name).write_text(text)
        with pytest.raises(DataError) as caught:
            predict_table(spec, Path(name), Path("out.csv"), 0.9)
        assert remedy in caught.value.remedy
        assert "data" not in caught.value.remedy
    assert not Path("out.csv").exists()
    good.to_csv("new.csv", index=False)
    many = make_job("assemble", "many", experiment_class().model_validate({**CONFIG, "title": "Many"}), "results")
    write_spec(many)
    open_group(many.layout.posterior, "w")
    record_as(Path("results"), "many", "assemble", [many.layout.posterior], specification=many.digest)
    for words, said in (
        (["old", "--table", "gone.csv"], "gone.csv: no such file"),
        (["many", "--table", "new.csv"], "key 'data.replicates': its posterior is that of many datasets"),
        (
            ["odl", "--table", "new.csv"],
            "no posterior of an experiment 'odl' in results/odl\n  remedy: did you mean 'old'?",
        ),
        (["old", "--table", "new.csv", "--interval", "90"], "not between 0 and 1"),
        (["old", "--table", "new.csv", "--output", "./new.csv"], "--output new.csv: this is the file to read"),
    ):
        assert main(["predict", *words]) != 0
        assert said in capsys.readouterr().err


def test_a_failed_verdict_is_told_and_the_old_table_is_kept(
    trained: Callable[..., Job], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = trained(NORMAL, normal_latents())
    old = Path("old.csv").read_bytes()
    spec.layout.verdict.parent.mkdir()
    numbers = NumCoordinates(summaries=7, latents=7, listed=14)
    write_verdict(spec.layout.verdict, Verdict(
        verdict="fail", gates=(), experiment="old", num_chains=2, num_draws=150, num_coordinates=numbers,
        latents={}, num_divergences=0, divergence_share=0.0, bfmi=(), acceptance_rate=None,
    ))  # fmt: skip
    Path("new.csv").write_text("x,site,y\n,bonn,\n1,bonn,\n")
    assert main(["predict", "old", "--table", "new.csv", "--output", "old.csv"]) == 2
    assert "--output old.csv: this is the file to read" in capsys.readouterr().err
    assert Path("old.csv").read_bytes() == old
    assert main(["predict", "old", "--table", "new.csv"]) == 3
    said = capsys.readouterr().err
    assert "the verdict on the chains of 'old' is fail" in said
    # Keys of the experiment say how its own table was read, and mend nothing here.
    assert "row 1: 'x' holds no value" in said
    assert "leave out the column" in said
    assert "data:" not in said


def test_outcomes_do_not_depend_on_the_size_of_a_block(
    trained: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = trained(NORMAL, normal_latents())
    pd.DataFrame({"x": np.linspace(0, 9, 150), "site": ["bonn"] * 150}).to_csv("new.csv", index=False)
    predict_table(spec, Path("new.csv"), Path("whole.csv"), 0.9)
    monkeypatch.setattr("bayesmesh.workflow.stages.predict.BLOCK_CELLS", 70 * SHAPE[0] * SHAPE[1])
    predict_table(spec, Path("new.csv"), Path("blocks.csv"), 0.9)
    assert Path("blocks.csv").read_text() == Path("whole.csv").read_text()


def test_new_rows_need_no_censoring_but_known_errors(trained: Callable[..., Job]) -> None:
    z = {k: v for k, v in normal_latents().items() if "site" not in k}
    pd.DataFrame({"x": [1.0, 2.0]}).to_csv("new.csv", index=False)
    spec = trained({"formula": "y ~ x", "censored": "kind", "interval_end": "end"}, z)
    predict_table(spec, Path("new.csv"), Path("out.csv"), 0.9)
    shutil.rmtree("results")
    spec = trained({"formula": "y ~ x", "known_error": "most"}, z)
    with pytest.raises(DataError, match="no column 'most', on which predictions depend"):
        predict_table(spec, Path("new.csv"), Path("out.csv"), 0.9)


def test_draws_on_request_are_those_of_the_table_whatever_the_blocks(
    trained: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(NORMAL, normal_latents(), standardise=["y"])
    new = pd.DataFrame({"x": np.linspace(0, 9, 150), "site": ["bonn"] * 150})
    new.to_csv("new.csv", index=False)
    assert main(["predict", "old", "--table", "new.csv", "--draws", "draws.zarr"]) == 0
    table = pd.read_csv("new-predicted.csv")
    tree = xr.open_datatree("draws.zarr", engine="zarr").load()
    whole, constants = tree["predictions"].to_dataset(), tree["predictions_constant_data"].to_dataset()
    assert whole["y"].dims == ("chain", "draw", "row")
    assert whole.attrs["sample_dims"] == ["chain", "draw"]
    pd.testing.assert_frame_equal(
        constants.to_dataframe()[["x", "site"]].reset_index(drop=True), new, check_dtype=False
    )
    assert whole["row"].to_numpy().tolist() == table["row"].tolist()
    both = ("chain", "draw")
    np.testing.assert_allclose(whole["mean"].mean(both), table["y_mean"], rtol=1e-12)
    for name, columns in (("mean", ["mean_low", "mean_high"]), ("y", ["y_low", "y_high"])):
        np.testing.assert_allclose(whole[name].quantile([0.05, 0.95], both).T, table[columns], rtol=1e-12)
    # Row by row, draws differ from each other as those of the latents of their chain do.
    z = normal_latents()
    line = (
        z["intercept"] + z["effects_site"][:, :, 1, 0] - z["coefficients"][..., 0] * pd.read_csv("old.csv")["x"].mean()
    )
    scale, mean = pd.read_csv("old.csv")["y"].std(ddof=0), pd.read_csv("old.csv")["y"].mean()
    np.testing.assert_allclose(whole["mean"][..., 0], line * scale + mean, rtol=1e-5)
    monkeypatch.setattr("bayesmesh.workflow.stages.predict.BLOCK_CELLS", 70 * SHAPE[0] * SHAPE[1])
    monkeypatch.setattr("bayesmesh.store.predictions.TABLE_CELLS", 5000)
    for path in ("draws.zarr", "draws.parquet"):
        assert main(["predict", "old", "--table", "new.csv", "--draws", path]) == 0
    xr.testing.assert_identical(xr.open_datatree("draws.zarr", engine="zarr").load(), tree)
    frame = pd.read_parquet("draws.parquet")
    assert frame.columns.tolist() == ["row", "chain", "draw", "mean", "outcome"]
    expected = whole.rename(y="outcome").to_dataframe(dim_order=["row", "chain", "draw"]).reset_index()[frame.columns]
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


def test_draws_of_classes_are_probabilities_and_simulated_names(trained: Callable[..., Job]) -> None:
    z = {"intercept": np.full(SHAPE, 0.2), "coefficients": np.full((*SHAPE, 1), 0.5)}
    trained({"formula": "alive ~ x", "family": "bernoulli"}, z)
    pd.DataFrame({"x": np.linspace(0, 9, 12)}).to_csv("new.csv", index=False)
    for path in ("draws.zarr", "draws.parquet"):
        assert main(["predict", "old", "--table", "new.csv", "--draws", path]) == 0
    frame, table = pd.read_parquet("draws.parquet"), pd.read_csv("new-predicted.csv")
    np.testing.assert_allclose(frame.groupby("row")["probability[yes]"].mean(), table["probability[yes]"], rtol=1e-12)
    share = (frame["outcome"] == "yes").groupby(frame["row"]).mean()
    # 300 draws: a share has an error of at most 0.03.
    np.testing.assert_allclose(share, table["probability[yes]"], atol=0.12)
    stored = xr.open_zarr("draws.zarr", group="predictions", consolidated=False)
    assert (stored["probability"].dims[3], stored["class"].to_numpy().tolist()) == ("class", ["yes"])
    codes = np.asarray(stored["alive"].attrs["levels"])[stored["alive"].transpose("row", "chain", "draw")]
    assert codes.reshape(-1).tolist() == frame["outcome"].tolist()


def test_draws_are_not_written_over_other_things(
    trained: Callable[..., Job], capsys: pytest.CaptureFixture[str]
) -> None:
    trained(NORMAL, normal_latents())
    good = pd.DataFrame({"x": [1.0], "site": ["bonn"]})
    good.to_parquet("new.parquet")
    Path("mine.zarr", "posterior").mkdir(parents=True)
    for path, said in (
        ("draws.nc", "--draws draws.nc: its ending is neither .zarr nor .parquet\n  remedy: write, for example, draws.parquet"),
        ("mine.zarr", "--draws mine.zarr: this folder does not hold draws of predictions alone"),
        ("new.parquet", "--draws new.parquet: this is the file to read"),
        ("results/old/posterior.zarr", "--draws results/old/posterior.zarr"),
    ):  # fmt: skip
        assert main(["predict", "old", "--table", "new.parquet", "--draws", path]) == 2
        assert said in capsys.readouterr().err
    assert not Path("new-predicted.csv").exists()
    good.assign(site="bohn").to_parquet("new.parquet")
    assert main(["predict", "old", "--table", "new.parquet", "--draws", "draws.zarr"]) == 3
    assert not [*Path().glob("*draws.zarr*")]


@pytest.mark.parametrize("known", [{"censored": "status"}, {"truncated": {"upper": 40}}])
def test_rows_of_outcomes_known_in_part_are_predicted(trained: Callable[..., Job], known: dict[str, Any]) -> None:
    """Ends that a row does not have are infinite, in the table of the experiment too."""
    latents = {name: normal_latents()[name] for name in ("intercept", "coefficients", "sigma")}
    trained({"formula": "y ~ x", **known}, latents)
    frame = pd.DataFrame({"x": [1.0, 9.0], "status": ["right", "none"]})
    frame.to_csv("new.csv")
    assert main(["predict", "old", "--table", "new.csv"]) == 0
    found = pd.read_csv("new-predicted.csv").select_dtypes("number")
    assert found.shape[1] > 2
    assert np.isfinite(found).all(axis=None)
