"""What decides a chain's draws is in its identity, and nothing else."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import jax
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.registry import list_components
from bayesmesh.errors import StoreError
from bayesmesh.sampling.loop import identity
from bayesmesh.sampling.loop.identity import (
    chain_identity,
    check_environment,
    environment,
    explain_new_chains,
)
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.checked import write_checked
from bayesmesh.workflow.code import component_code
from bayesmesh.workflow.jobs import make_job
from cases import OPTIONS

CONFIG = {
    "title": "Some",
    "data": {"source": "gaussian"},
    "model": {"name": "gaussian"},
    "kernel": {"name": "hmc"},
    "sampling": {"chains": 8, "chain_groups": 2, "mode": "independent"},
}


def identity_of(changes: dict[str, Any] | None = None, data: str = "0123", stage: str = "sample") -> str:
    config = copy.deepcopy(CONFIG)
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        block = config
        for name in parents:
            block = block.setdefault(name, {})
        block[last] = value
    spec = make_job(stage, "some", experiment_class().model_validate(config), "results")
    return chain_identity(spec.config, component_code(spec), data, spec.num_chains)


@pytest.mark.parametrize(
    "change",
    [
        {"model.prior_scale": 2.0},
        {"kernel.num_leapfrog_steps": 3},
        {"kernel.name": "chees"},
        {"kernel.metric": "diagonal"},
        {"sampling.seed": 1},
        {"sampling.warmup": 499},
        {"sampling.initial": {"method": "zero"}},
        {"sampling.initial": {"spread": 0.5}},
        {"compute.dtype": "float64"},
        {"compute.mesh": {"chain": 1, "data": 2}},
        {"compute.matmul_precision": "high"},
        {"compute.row_tile": 7},
        {"compute.sharding": "shard_map"},
        # Chains that run together adapt together, and are rounded together.
        {"sampling.chains": 4},
        {"sampling.chain_groups": 4},
    ],
    ids=str,
)
def test_what_decides_the_draws_changes_the_identity(change: dict[str, Any]) -> None:
    assert identity_of(change) != identity_of()


def test_the_file_of_a_function_that_an_option_names_is_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, change = tmp_path / "own_functions.py", {"model": {**OPTIONS["log_density"], "name": "log_density"}}
    change["model"]["function"] = "own_functions:mine"
    found = []
    for text in ("def mine(): return 1", "def mine():\n    # a comment\n    return 1", "def mine(): return 2"):
        file.write_text(text)
        found.append(identity_of(change))
    assert found[0] == found[1] != found[2]


def test_other_data_and_another_model_change_the_identity() -> None:
    assert identity_of(data="4567") != identity_of()
    names = list_components("model")
    assert len({identity_of({"model": {"name": n, **OPTIONS.get(n, {})}}) for n in names}) == len(names)


@pytest.mark.parametrize(
    "change",
    [
        {"sampling.draws": 40_000},
        {"sampling.stop": {"min_ess_bulk": 400.0}},
        {"sampling.segment_seconds": 1.0},
        {"sampling.on_changed_environment": "accept"},
        {"posterior": {"probe_rows": 3}},
        {"gates": {}},
        {"title": "Other"},
    ],
    ids=str,
)
def test_what_does_not_decide_the_draws_leaves_the_identity(change: dict[str, Any]) -> None:
    assert identity_of(change) == identity_of()


def test_more_groups_of_the_same_size_leave_the_identity() -> None:
    """A group's draws follow from its number: more groups are more chains, not others."""
    assert identity_of({"sampling.chains": 16, "sampling.chain_groups": 4}) == identity_of()


def test_the_version_of_the_sampler_is_part_of_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity_of()
    monkeypatch.setattr(identity, "DRAWS", identity.DRAWS + 1)
    assert identity_of() != before


def mesh(num_devices: int) -> jax.sharding.Mesh:
    return jax.make_mesh((1, num_devices), ("chain", "data"), devices=jax.devices()[:num_devices])


def test_an_unchanged_environment_is_accepted() -> None:
    assert check_environment(environment(mesh(2)), environment(mesh(2)), "refuse", "folder") == []


def test_what_was_not_recorded_counts_as_changed() -> None:
    present = environment(mesh(2))
    stored = {key: value for key, value in present.items() if key != "xla_flags"}
    with pytest.raises(StoreError, match="xla_flags: not recorded then"):
        check_environment(stored, present, "refuse", "folder")


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"packages": {"jax": "0.1"}}, "packages: {'jax': '0.1'} then"),
        ({"kind": "TPU v9"}, "kind: TPU v9 then, cpu now"),
    ],
)
def test_a_changed_environment_is_refused_or_recorded(change: dict[str, Any], shown: str) -> None:
    present = environment(mesh(2))
    with pytest.raises(StoreError, match="would not continue bit for bit") as raised:
        check_environment(present | change, present, "refuse", "some/folder")
    assert shown in raised.value.message
    assert raised.value.message.startswith("some/folder")
    assert "on_changed_environment: accept" in raised.value.remedy
    (difference,) = check_environment(present | change, present, "accept", "some/folder")
    assert shown in difference


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"XLA_FLAGS": "--xla_cpu_enable_fast_math=true --xla_force_host_platform_device_count=9"}, "--xla_cpu_enable_fast_math=true"),
        ({"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_COMPILATION_CACHE_DIR": "a", "JAX_PLATFORMS": "cpu"}, "JAX_DISABLE_MOST_OPTIMIZATIONS=1"),
        ({"JAX_LOG_COMPILES": "1", "JAX_PROCESS_ID": "1", "JAX_ENABLE_X64": "0"}, ""),
    ],
    ids=["of XLA", "of JAX", "that change nothing"],
)  # fmt: skip
def test_flags_for_the_compiler_are_part_of_the_environment(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment(mesh(1))["xla_flags"] == said


def test_a_file_beside_a_model_of_ones_own_changes_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "scales.py").write_text("SCALE = 1\n")
    (package / "models.py").write_text("from .scales import SCALE\n")
    change = {"model.name": "own_package.models:Mine"}
    before = identity_of(change)
    assert identity_of(change) == before
    (package / "scales.py").write_text("SCALE = 2\n")
    assert identity_of(change) != before


BEFORE = {"config": {"sampling": {"seed": 1, "draws": 5}}, "data": "a", "draws": 2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": {"sampling": {"seed": 2, "draws": 5}}}, "sampling.seed was 1 and is 2"),
        ({"data": "b"}, "the data have changed"),
        ({"draws": 3}, "an earlier version of bayesmesh sampled them"),
        ({"draws": 3, "data": "b"}, "the data have changed, an earlier version of bayesmesh sampled them"),
        ({}, "the code of the model or the kernel has changed"),
        ({"config": {"sampling": {"seed": 1, "draws": 9}}}, "the code of the model or the kernel has changed"),
    ],
)
def test_the_reason_is_what_has_changed(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    layout = ExperimentLayout(tmp_path, "some")
    assert explain_new_chains(layout, "b" * 16, {**BEFORE, **change}) == ""
    write_checked(layout.identity_record("a" * 16), {**BEFORE, "segment_draws": 5})
    assert explain_new_chains(layout, "a" * 16, {**BEFORE, **change}) == ""
    assert f"anew: {reason};" in explain_new_chains(layout, "b" * 16, {**BEFORE, **change})
