"""Sampling that cannot succeed is refused, or ends early, in words and with an exit code of its kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bayesmesh.cli import main
from bayesmesh.workflow.stages import compile, sample

MODEL = """
import jax.numpy as jnp
from bayesmesh.config.settings import Settings
from bayesmesh.models.gaussian import Gaussian

class Options(Settings):
    prior_scale: float = 1.0

class Nowhere(Gaussian):
    def log_likelihood(self, latents, rows):
        found = super().log_likelihood(latents, rows)
        return jnp.where(jnp.arange(found.shape[0]) == 3, -jnp.inf, found)
"""


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function of model, kernel and stages that runs them, and gives the last exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "model_without_start.py").write_text(MODEL)
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [some]\n")
    for module in (compile, sample):
        # The process goes on to other tests.
        monkeypatch.setattr(module, "use_cache", lambda _: None)

    def run(model: str, kernel: dict[str, Any], *stages: str) -> int:
        experiment = {
            "title": "Some", "data": {"source": "gaussian", "num_rows": 20}, "model": {"name": model}, "kernel": kernel,
            "sampling": {"chains": 2, "warmup": 0, "draws": 300}, "compute": {"platform": "cpu", "mesh": {"data": 1}},
        }  # fmt: skip
        (tmp_path / "config" / "experiments" / "some.yaml").write_text(yaml.safe_dump(experiment))
        for stage in stages:
            group = ["--group", "group-000"] if stage == "sample" else []
            if code := main([stage, "--experiment", "some", *group]):
                return code
        return 0

    return run


def test_without_a_finite_start_the_row_and_the_file_are_named(
    stages: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert stages("model_without_start:Nowhere", {"name": "hmc"}, "fetch", "shard", "compile", "sample") == 2
    said = capfd.readouterr().err
    assert "error: config/experiments/some.yaml: no start with a finite log density and gradient" in said
    assert (
        "for chains 0, 1; in the last attempt of chain 0, the log likelihood is -inf in training row 4 (x = [" in said
    )
    assert "sampling.initial.method" in said
    assert not list(tmp_path.glob("results/some/chains/*/*/commits/*"))
