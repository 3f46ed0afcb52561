"""Programs are handed from `compile` to `sample` only where both were told the same, on a CPU, in a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.planning.plan_specs import StageSpec, make_spec
from bayesmesh.running import fork_reuse
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

    def run(platform: str = "cpu", *, is_fork: bool = True, later: Sequence[kept_programs.Later] = ()) -> Any:
        monkeypatch.setattr(fork_reuse._State, "began", 1.0 if is_fork else None)
        monkeypatch.setattr(fork_reuse._State, "is_asked", False)
        # The process of the tests is larger than a fork.
        monkeypatch.setattr(fork_reuse, "MOST_BYTES", 2**40)
        program = program_on(platform)
        stamps = {name: f"{digest} 12 34" for name, digest in OBSERVED.items()}
        kept_programs.keep_programs(spec_of("compile"), "data", stamps, program, {"segment": "executable"}, later)
        return program

    yield run
    for kept in (kept_programs._kept, kept_programs._later, kept_programs._prepared):
        kept.clear()


@pytest.mark.parametrize("changed", [{}, {"sampling": {"draws": 9, "seed": 3}}])
def test_programs_are_taken_once_with_the_settings_of_sampling(keep: Callable[..., Any], changed: Settings) -> None:
    keep()
    assert fork_reuse.is_asked()
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
    assert not fork_reuse.is_asked()
    assert kept_programs.take_programs(spec_of("sample"), "data", OBSERVED, 64) is None


class Lowered:
    def __init__(self, name: str, begins: threading.Event | None = None) -> None:
        self.name, self.begins = name, begins

    def compile(self) -> str:
        if self.begins is not None:
            self.begins.set()
        return self.name


def later_of(*lowered: Any) -> kept_programs.Later:
    return kept_programs.Later(spec_of("assemble"), lambda: iter(lowered))


def test_programs_of_assemble_are_made_while_a_block_runs_and_taken_once(keep: Callable[..., Any]) -> None:
    begins = threading.Event()
    keep(later=[later_of(Lowered("summaries"), Lowered("pointwise", begins))])
    with kept_programs.preparing_later("data"):
        assert begins.wait(60)
    assert kept_programs.take_later(spec_of("assemble"), "data") == ["summaries", "pointwise"]
    assert kept_programs.take_later(spec_of("assemble"), "data") == ()


@pytest.mark.parametrize(("changed", "fingerprint"), [({"sampling": {"draws": 9}}, "data"), ({}, "other data")])
def test_programs_of_another_posterior_are_not_taken(
    keep: Callable[..., Any], changed: Settings, fingerprint: str
) -> None:
    keep(later=[later_of(Lowered("summaries"))])
    with kept_programs.preparing_later("data"):
        pass
    assert kept_programs.take_later(spec_of("assemble", **changed), fingerprint) == ()


def test_a_block_that_fails_ends_the_thread_before_its_next_program(keep: Callable[..., Any]) -> None:
    begins, goes_on, made = threading.Event(), threading.Event(), list[str]()

    def lower() -> Iterator[Any]:
        begins.set()
        assert goes_on.wait(60)
        yield SimpleNamespace(compile=lambda: made.append("summaries"))

    keep(later=[kept_programs.Later(spec_of("assemble"), lower)])
    with pytest.raises(ZeroDivisionError), kept_programs.preparing_later("data"):
        int(begins.wait(60)) / 0
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name == "programs of assemble":
            thread.join(60)
    assert made == []
    assert kept_programs.take_later(spec_of("assemble"), "data") == ()


def test_a_model_is_of_the_package_unless_its_code_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "of_user.py").write_text("class Own:\n    pass\n")
    assert kept_programs.is_of_package(spec_of("sample"))
    assert not kept_programs.is_of_package(spec_of("sample", model={"name": "of_user:Own"}))
