"""`bayesmesh export` writes what the posterior holds, block by block, and only of a finished experiment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from arviz_stats import summary

from bayesmesh.cli import main
from bayesmesh.config.experiment import experiment_class
from bayesmesh.diagnostics.verdict import NumCoordinates, Verdict, write_verdict
from bayesmesh.errors import ConfigError
from bayesmesh.operations import export
from bayesmesh.store.arrays import open_group, write_array, write_texts
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW, ExperimentLayout
from bayesmesh.store.posterior.attributes import describe_groups
from bayesmesh.workflow.jobs import make_job, write_spec
from recording import record_as

LAYOUT = ExperimentLayout(Path("results"), "old")


@pytest.fixture(autouse=True)
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A posterior with a verdict, of which a block holds two draws."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(export, "BLOCK_BYTES", 100)
    config = {
        "data": {"source": "table", "files": "old.csv"},
        "model": {"name": "gaussian"},
        "kernel": {"name": "nuts"},
    }
    job, draws = (
        make_job("assemble", "old", experiment_class().model_validate(config), "results"),
        np.arange(10.0).reshape(2, 5),
    )
    write_spec(job)
    root = open_group(LAYOUT.posterior, "w")
    for name in ("posterior", "deterministics", "sample_stats"):
        for dim, length in ((CHAIN, 2), (DRAW, 5)):
            write_array(root.require_group(name), dim, np.arange(length), [dim])
    write_array(root["posterior"], "mu", draws, (CHAIN, DRAW))
    write_array(
        root["posterior"],
        "b",
        np.multiply.outer(draws, [[1, 2, 3], [4, 5, 6]]).astype("float32"),
        (CHAIN, DRAW, "site", "year"),
    )
    write_texts(root["posterior"], "site", ["Köln, Süd", "Bonn"], ["site"])
    write_array(root["posterior"], "year", np.array([1999, 2000, 2001]), ["year"])
    write_array(root["deterministics"], "twice", 2 * draws, (CHAIN, DRAW))
    write_array(root["sample_stats"], "diverging", draws > 7, (CHAIN, DRAW))
    write_array(root.require_group("constant_data"), "num_rows", np.asarray(7), ())
    describe_groups(root, "2026-01-01")
    write_hashes(LAYOUT.posterior, {})
    verdict = Verdict(
        verdict="pass", gates=(), experiment="old", num_chains=2, num_draws=5,
        num_coordinates=NumCoordinates(summaries=0, latents=0, listed=0), latents={}, num_divergences=0, divergence_share=0.0,
        bfmi=(), acceptance_rate=0.9,
    )  # fmt: skip
    write_verdict(LAYOUT.verdict, verdict)
    record_as(Path("results"), "old", "assemble", [LAYOUT.posterior, LAYOUT.posterior_hashes], specification=job.digest)
    record_as(Path("results"), "old", "diagnose", [LAYOUT.verdict])


def test_netcdf_is_the_posterior(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "old"]) == 0
    assert (
        "old-posterior.nc: groups constant_data, deterministics, posterior, sample_stats, 0.0 MiB"
        in capsys.readouterr().err
    )
    stored = xr.open_datatree(LAYOUT.posterior, engine="zarr", consolidated=False)
    xr.testing.assert_identical(stored.load(), xr.open_datatree("old-posterior.nc").load())


@pytest.mark.parametrize(("form", "read"), [("parquet", pd.read_parquet), ("csv", pd.read_csv)])
def test_a_table_has_a_row_for_each_draw_and_the_columns_of_arviz(form: str, read) -> None:
    assert main(["export", "old", "--format", form, "--output", "made/table"]) == 0
    table, stored = read("made/table"), xr.open_datatree(LAYOUT.posterior, engine="zarr", consolidated=False)
    assert [*table][:2] == ["chain", "draw"]
    assert {*table} == {"chain", "draw", "twice", *summary(stored["posterior"].to_dataset()).index}
    assert table["chain"].tolist() == [0] * 5 + [1] * 5
    assert table["draw"].tolist() == [*range(5)] * 2
    assert table["mu"].tolist() == [*range(10)]
    assert table["b[Köln, Süd, 2001]"].tolist() == [3 * i for i in range(10)]
    assert table["b[Bonn, 1999]"].tolist() == [4 * i for i in range(10)]
    assert table["twice"].tolist() == [2 * i for i in range(10)]


def test_a_table_is_not_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MOST_COLUMNS", 8)
    with pytest.raises(ConfigError, match="more than 8 scalars") as raised:
        export.write_table(LAYOUT.posterior, Path("wide.csv"), "csv")
    assert "--format netcdf" in raised.value.remedy
    assert not Path("wide.csv").exists()


def test_only_finished_results_are_exported(capsys: pytest.CaptureFixture[str]) -> None:
    def refusal(name: str = "old", *words: str) -> str:
        assert main(["export", name, *words]) != 0
        assert not [*Path().glob("*.nc"), *Path().glob(".*")]
        return capsys.readouterr().err

    assert "did you mean 'old'?" in refusal("odl")
    Path("old.csv").write_text("y\n1\n")
    assert "--output old.csv: this is the file to read" in refusal("old", "--output", "old.csv")
    assert f"--output {LAYOUT.verdict}: exists in results" in refusal("old", "--output", str(LAYOUT.verdict))
    metadata = LAYOUT.posterior / "posterior" / "mu" / "zarr.json"
    metadata.write_text(metadata.read_text() + " ")
    assert "has been altered" in refusal()
    metadata.write_text(metadata.read_text()[:-1])
    assert "other/old" in refusal("old", "--results", "other")
    with pytest.raises(SystemExit):
        main(["export", "old", "--output", ""])
    assert "argument --output: the name of the file is empty" in capsys.readouterr().err
    LAYOUT.verdict.write_text(LAYOUT.verdict.read_text() + " ")
    assert "has been altered" in refusal()
    LAYOUT.verdict.unlink()
    assert "experiment 'old' is unfinished" in refusal()
