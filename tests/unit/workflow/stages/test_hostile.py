"""Each mistake of a user is refused by a sentence with file and remedy, before anything is compiled."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jax
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.loading import load_experiment
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.devices import check_devices
from bayesmesh.workflow.jobs import make_job
from bayesmesh.workflow.stages.checks import check_derived, check_reading
from hostile import CONFIGURATIONS, MODELS, Hostile


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True)
def _in_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def module_of(case: Hostile) -> str:
    """Return one name a case: what parses source texts keeps them by file."""
    return "mine_" + re.sub(r"\W", "_", case.name)


def check(case: Hostile, folder: Path) -> Path:
    """Check the model as the compile stage does, and return the file of its module."""
    file = case.write(folder, module_of(case))
    experiment = experiment_class().model_validate({**case.settings, "model": {"name": f"{file.stem}:Mine"}})
    fields, constants = {"x": FieldSpec((2,), "float64")}, {"noise_scale": 1.0, "dimension": 2}
    data_spec = DataSpec(20, fields, constants, experiment.compute.dtype)
    compiled, derived = (make_job(stage, "mine", experiment, "results") for stage in ("compile", "assemble"))
    try:
        model_class, options = component_of(compiled, "model")
        latents = check_reading(compiled, (model_class, options), data_spec)
        check_derived(derived, model_class(options, data_spec), data_spec, latents)
    finally:
        sys.modules.pop(file.stem, None)
    return file


def test_the_model_of_all_cases_is_accepted_without_its_mistake(tmp_path: Path) -> None:
    for experiment in ({}, {"compute": {"dtype": "float64"}}):
        check(Hostile("works", (), experiment=experiment), tmp_path)


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_a_mistake_is_one_sentence_with_file_and_remedy(case: Hostile, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check(case, tmp_path)
    said = str(caught.value).replace(module_of(case), "mine")
    assert said.startswith(f"config/experiments/mine.yaml: key 'model.name': {tmp_path / 'mine.py'}")
    assert "Traceback" not in said
    assert caught.value.remedy
    for part in case.said:
        assert part in said


@pytest.mark.parametrize("case", CONFIGURATIONS, ids=lambda case: case.name)
def test_a_configuration_that_cannot_run_is_refused_before_data_are_read(
    case: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    case.write(tmp_path, module_of(case))
    path = Path("config/experiments/mine.yaml")
    with pytest.raises(ConfigError) as caught:
        check_devices(path, load_experiment(path), 2)
    said = str(caught.value)
    assert said.startswith(f"{path}: key '")
    assert "Traceback" not in said
    for part in case.said:
        assert part in said
