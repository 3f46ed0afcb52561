"""When programs are compiled, a model that loops over its rows is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest
import yaml

from bayesmesh.cli import main
from bayesmesh.store.records.checked import read_checked
from bayesmesh.workflow.stages import compile

MODEL = """
import jax.numpy as jnp
from bayesmesh.config.settings import Settings
from bayesmesh.models.gaussian import Gaussian

class Options(Settings):
    prior_scale: float = 1.0
    noise_scale: float = 1.0

class Looping(Gaussian):
    def log_likelihood(self, latents, rows):
        return jnp.stack([self._noise(latents["mean"]).log_prob(x) for x in rows["x"]])
"""


@pytest.fixture
def compile_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function of a number of rows that compiles such a model, and gives the exit code."""

    def run(num_rows: int) -> int:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "looping.py").write_text(MODEL)
        experiment = {
            "title": "Loop", "data": {"source": "gaussian", "num_rows": num_rows}, "model": {"name": "looping:Looping"},
            "kernel": {"name": "hmc"}, "sampling": {"chains": 1, "warmup": 5, "draws": 5},
        }  # fmt: skip
        (tmp_path / "config" / "experiments").mkdir(parents=True)
        (tmp_path / "config" / "config.yaml").write_text("experiments: [loop]\n")
        (tmp_path / "config" / "experiments" / "loop.yaml").write_text(yaml.safe_dump(experiment))
        # The process goes on to other tests.
        monkeypatch.setattr(compile, "use_cache", lambda _: None)
        for stage in ("fetch", "shard"):
            assert main([stage, "--experiment", "loop"]) == 0
        return main(["compile", "--experiment", "loop"])

    return run


def test_a_model_that_could_not_be_compiled_is_refused(compile_rows: Any, capfd: pytest.CaptureFixture[str]) -> None:
    jax.config.update("jax_enable_x64", True)
    assert compile_rows(50_000) == 2
    said = capfd.readouterr().err
    assert "config/experiments/loop.yaml: model 'looping:Looping': its program grows with its data" in said
    assert (
        "remedy: replace the Python loop over rows, or Python's sum over an array, by operations on whole arrays"
        in said
    )


def test_warnings_of_a_model_are_in_the_log_and_in_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "years.csv").write_text("year,y\n" + "".join(f"{1990 + i},{i % 7}\n" for i in range(30)))
    experiment = {
        "title": "Years", "data": {"source": "table", "files": "years.csv"}, "kernel": {"name": "hmc"},
        "model": {"name": "glm", "formula": "y ~ year^2"}, "sampling": {"chains": 1, "warmup": 5, "draws": 5},
    }  # fmt: skip
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [years]\n")
    (tmp_path / "config" / "experiments" / "years.yaml").write_text(yaml.safe_dump(experiment))
    monkeypatch.setattr(compile, "use_cache", lambda _: None)
    for stage in ("fetch", "shard", "compile"):
        assert main([stage, "--experiment", "years"]) == 0
    (warning,) = read_checked(tmp_path / "results" / "years" / "program" / "audit.json")["warnings"]
    assert "write i(year^2)" in warning.lower()
    assert f"warning: {warning}" in capfd.readouterr().err
