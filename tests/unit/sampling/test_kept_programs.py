"""Programs are handed from `compile` to `sample` only where both were told the same, on a CPU, in a fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.planning.specs import StageSpec, make_spec
from bayesmesh.running import staying
from bayesmesh.sampling import kept_programs

type Settings = dict[str, Any]

OBSERVED = {"prior.csv": "0123"}


def program_on(platform: str) -> Any:
    devices = np.array([[SimpleNamespace(platform=platform)]])
    return SimpleNamespace(mesh=SimpleNamespace(devices=devices), slice_draws=64, sampling=None)


def spec_of(stage: str, name: str = "some", **changed: Settings) -> StageSpec:
    settings: dict[str, Settings] = {
        "data": {"source": "gaussian"}, "model": {"name": "gaussian"}, "kernel": {"name": "hmc"},
        "sampling": {"warmup": 20, "draws": 6},
    }  # fmt: skip
    merged = {key: value | changed.get(key, {}) for key, value in settings.items()} | {"title": "Some"}
    return make_spec(stage, name, experiment_class().model_validate(merged), "results")


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return a function that keeps programs for a platform, in what seems to be a fork, and returns them."""

    def run(platform: str = "cpu", *, is_fork: bool = True) -> Any:
        monkeypatch.setattr(staying._State, "began", 1.0 if is_fork else None)
        monkeypatch.setattr(staying._State, "is_asked", False)
        # The process of the tests is larger than a fork.
        monkeypatch.setattr(staying, "MOST_BYTES", 2**40)
        program = program_on(platform)
        stamps = {name: f"{digest} 12 34" for name, digest in OBSERVED.items()}
        kept_programs.keep_programs(spec_of("compile"), "data", stamps, program, {"segment": "executable"})
        return program

    yield run
    kept_programs._kept.clear()


@pytest.mark.parametrize("changed", [{}, {"sampling": {"draws": 9, "seed": 3}}])
def test_programs_are_taken_once_with_the_settings_of_sampling(keep: Callable[..., Any], changed: Settings) -> None:
    keep()
    assert staying.is_asked()
    spec = spec_of("sample", **changed)
    program, executables = kept_programs.take_programs(spec, "data", OBSERVED, 64)
    assert (program.sampling, executables) == (spec.sampling, {"segment": "executable"})
    assert kept_programs.take_programs(spec, "data", OBSERVED, 64) is None


@pytest.mark.parametrize(
    ("changed", "others"),
    [
        ({"kernel": {"initial_step_size": 0.3}}, {}),
        ({"model": {"prior_scale": 2.0}}, {}),
        ({"sampling": {"warmup": 30}}, {}),
        ({"sampling": {"chains": 8}}, {}),
        ({"name": "other"}, {}),
        ({}, {"fingerprint": "other data"}),
        ({}, {"observed": {"prior.csv": "missing"}}),
        ({}, {"observed": {}}),
        ({}, {"slice_draws": 128}),
    ],
)
def test_other_programs_are_not_taken(keep: Callable[..., Any], changed: Settings, others: Settings) -> None:
    keep()
    now = {"fingerprint": "data", "observed": OBSERVED, "slice_draws": 64} | others
    assert kept_programs.take_programs(spec_of("sample", **changed), **now) is None


@pytest.mark.parametrize(("platform", "is_fork"), [("gpu", True), ("cpu", False)])
def test_nothing_is_kept_on_a_gpu_or_outside_of_a_fork(
    keep: Callable[..., Any], platform: str, *, is_fork: bool
) -> None:
    keep(platform, is_fork=is_fork)
    assert not staying.is_asked()
    assert kept_programs.take_programs(spec_of("sample"), "data", OBSERVED, 64) is None


def test_a_model_is_of_the_package_unless_its_code_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "of_user.py").write_text("class Own:\n    pass\n")
    assert kept_programs.is_of_package(spec_of("sample"))
    assert not kept_programs.is_of_package(spec_of("sample", model={"name": "of_user:Own"}))
