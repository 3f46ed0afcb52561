"""Sweeps: their members, the names of these, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.loading import load_configuration, load_experiment, load_file
from bayesmesh.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "config.yaml").write_text("experiments: [trial]\n")
    return tmp_path


def _write(folder: Path, good: str, sweep: str, name: str = "trial") -> Path:
    path = folder / "experiments" / f"{name}.yaml"
    path.write_text(f"{good}sweep: {sweep}\n")
    return path


def test_a_grid_and_cases_make_members_with_readable_names(folder: Path, good: str) -> None:
    grid = "{sampling.seed: [1, 2], kernel.initial_step_size: [0.1, 1e-3]}"
    experiments, sweep = load_file(_write(folder, good, f"{{grid: {grid}, cases: [{{kernel: {{name: nuts}}}}]}}"))
    assert sweep is not None
    assert list(experiments) == [
        f"trial-kernel-nuts-seed-{seed}-initial_step_size-{size}" for seed in (1, 2) for size in ("0p1", "0p001")
    ]
    last = experiments["trial-kernel-nuts-seed-2-initial_step_size-0p001"]
    assert (last.kernel.name, last.sampling.seed, last.kernel.model_dump()["initial_step_size"]) == ("nuts", 2, 0.001)
    assert last.title == "A test: kernel: {name: nuts}, sampling.seed: 2, kernel.initial_step_size: 0.001"
    assert last.sweep is None


def test_members_and_sweeps_can_be_listed_and_a_sweep_is_not_an_experiment(folder: Path, good: str) -> None:
    path = _write(folder, good, "{grid: {sampling.seed: [1, 2]}}")
    (folder / "config.yaml").write_text("experiments: [trial, trial-seed-2]\n")
    assert list(load_configuration(folder).experiments) == ["trial-seed-1", "trial-seed-2"]
    with pytest.raises(ConfigError, match="a sweep of 2 experiments"):
        load_experiment(path)


@pytest.mark.parametrize(
    ("sweep", "said", "remedy"),
    [
        ("{}", "key 'sweep': has no members", "grid"),
        ("{grid: {sampling.seed: []}}", "key 'sweep.grid.sampling.seed': has no values", "at least one"),
        ("{grids: {sampling.seed: [1]}}", "unknown key 'sweep.grids'", "did you mean 'grid'?"),
        ("{grid: {sampling.sed: [1]}}", "member 'trial-sed-1' (sampling.sed: 1): unknown key 'sampling.sed'", "'seed'"),
        ("{grid: {sampling.seed: [-1]}}", "member 'trial-seed-minus1' (sampling.seed: -1): key 'sampling.seed'", "Seed"),
        ("{grid: {sampling.seed: [1, 1]}}", "two members would be named 'trial-seed-1'", "once"),
        ("{grid: {kernel.initial_step_size: [1, 1.0]}}", "would be named 'trial-initial_step_size-1'", "cases"),
        ("{cases: [{name: a, sampling.seed: 0}, {name: b, sampling.seed: 0}]}", "same experiment as 'trial-a'", "remove"),
        ("{grid: {sampling.seed: [1]}, cases: [{sampling.seed: 2}]}", "is also a key of `cases`", "one of the two"),
        ("{grid: {sampling.seed: [1, 2, 3]}, max_members: 2}", "has 3 members, more than max_members, 2", "max_members: 3"),
        ("{grid: {model.name.x: [1]}}", "member 'trial-x-1': key 'model.name.x': 'name' is gaussian, which has no keys", "mapping"),
        ("{grid: {sweep.grid: [1]}}", "key 'sweep.grid.sweep.grid': cannot be swept", "name a key"),
        ("{cases: [{name: '../x', sampling.seed: 1}]}", "'trial-../x' is not a valid name for a member", "short `name`"),
        ("[1]", "key 'sweep': should be a mapping, found [1]", ""),
    ],
)  # fmt: skip
def test_what_makes_no_sweep_is_refused_with_file_key_and_remedy(
    folder: Path, good: str, sweep: str, said: str, remedy: str
) -> None:
    path = _write(folder, good, sweep)
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert said in caught.value.message
    assert remedy in caught.value.remedy


def test_a_member_with_the_name_of_another_experiment_is_refused(folder: Path, good: str) -> None:
    _write(folder, good, "{grid: {sampling.seed: [1, 2]}}")
    (folder / "experiments" / "trial-seed-2.yaml").write_text(good)
    found = load_configuration(folder)
    assert list(found.experiments) == ["trial-seed-2"]
    assert "the member 'trial-seed-2' would have the name of another" in found.broken["trial"].message
