"""What decides a chain's draws is in its identity, and nothing else."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import jax
import pytest

from bayesmesh.config.config_registry import list_components
from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import StoreError
from bayesmesh.planning.plan_specs import make_spec
from bayesmesh.sampling import chain_identity as identity
from bayesmesh.sampling.chain_identity import chain_identity, check_environment, environment, observed_digests
from bayesmesh.store.sealed import write_sealed
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
    spec = make_spec(stage, "some", experiment_class().model_validate(config), "results")
    return chain_identity(spec.config, data, spec.num_chains)


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


def test_the_code_is_part_of_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = identity_of(), []

    def changed(files: Any, digests: Any) -> str:
        del digests
        seen.extend(files)
        return "other"

    monkeypatch.setattr(identity, "fingerprint", changed)
    assert identity_of() != before
    names = {"/".join(path.parts[-2:]) for path in seen}
    assert {
        "models/gaussian.py",
        "kernels/hmc.py",
        "hamiltonian/trajectory.py",
        "sampling/sampling_density.py",
    } <= names
    assert {
        "sampling/program_rows.py",
        "sampling/chain_position.py",
        "metrics/identity.py",
        "adaptation/warmup_adaptation.py",
    } <= names
    assert {"adaptation/step_size.py", "sampling/initial.py", "models/base.py"} <= names
    assert not {"kernels/chees.py", "models/softmax_regression.py", "sampling/program_sharding.py"} & names
    identity_of({"compute.sharding": "shard_map"})
    assert "sampling/program_sharding.py" in {"/".join(path.parts[-2:]) for path in seen}


def test_the_identity_is_of_what_draws_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """class Own:
    def log_likelihood(self, latents, rows):
        return 1

    def summaries(self, latents, rows):
        return 2
"""
    path, change = tmp_path / "own_model.py", {"model.name": "own_model:Own"}
    path.write_text(text)
    before = identity_of(change)
    for new in (text.replace("return 2", "return 3"), text.replace("class Own:", "# A comment.\nclass Own:")):
        path.write_text(new)
        assert identity_of(change) == before
    path.write_text(text.replace("return 1", "return self.summaries(latents, rows)"))
    assert identity_of(change) != before


def mesh(num_devices: int) -> jax.sharding.Mesh:
    return jax.make_mesh((1, num_devices), ("chain", "data"), devices=jax.devices()[:num_devices])


def test_an_unchanged_environment_is_accepted() -> None:
    assert check_environment(environment(mesh(2)), environment(mesh(2)), "refuse", "folder") == []


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


def test_a_file_that_a_model_of_ones_own_imports_changes_the_identity(
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


def test_files_that_a_model_reads_are_part_of_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    audit, table = tmp_path / "audit.json", tmp_path / "table.csv"
    spec = make_spec("sample", "some", experiment_class().model_validate(CONFIG), "results")

    def identity_now() -> str:
        return chain_identity(spec.config, "0123", spec.num_chains, observed_digests(audit))

    found = []
    for names, text in (([], "1"), (["table.csv"], "1"), (["table.csv"], "2"), (["table.csv"], "1")):
        table.write_text(text)
        write_sealed(audit, {"observed": dict.fromkeys(names, "as it was then")})
        found.append(identity_now())
    assert found[0] == identity_of()
    assert found[1] == found[3]
    table.unlink()
    assert len({*found, identity_now()}) == 4
    # An audit from before files were observed.
    write_sealed(audit, {})
    assert identity_now() == identity_of()
