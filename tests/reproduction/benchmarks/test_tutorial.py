"""The examples on eight devices and their claims, which a broken kernel fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.hamiltonian import trajectory
from bayesmesh.kernels.hamiltonian.metrics import base
from bayesmesh_reproduction.benchmarks.history import write_rows
from bayesmesh_reproduction.benchmarks.tutorial import (
    COARSE,
    NUM_DEVICES,
    devices,
    precision,
    store_chains,
)
from bayesmesh_reproduction.claims.declaration import CLAIMS
from bayesmesh_reproduction.claims.judge import FAILED, HOLDS, judge_all
from bayesmesh_reproduction.layout import BenchmarkLayout


def verdicts(results: Path, claim: str) -> dict[str, str]:
    found = judge_all(results, tuple(c for c in CLAIMS if c.name == claim))
    return {finding.number.name: finding.verdict for finding in found}


def sample(results: Path) -> None:
    for name, options in (("chains", {}), ("coarse", COARSE)):
        states = results / f"{name}.npy"
        contender = devices.Chains(package="ours", saved=str(states), **options)
        contender.prepare({"draws": 1000})
        assert contender.run(0)["shape"] == f"{NUM_DEVICES} 1000 2 2"
        store_chains(BenchmarkLayout(results), name, np.load(states))


def test_chains_on_devices_are_independent_and_hold(tmp_path: Path) -> None:
    sample(tmp_path)
    assert set(verdicts(tmp_path, "E2").values()) == {HOLDS}
    states = np.load(tmp_path / "chains.npy")
    together = states.transpose(0, 2, 1, 3).reshape(2 * NUM_DEVICES, -1)
    assert np.abs(np.corrcoef(together) - np.eye(2 * NUM_DEVICES)).max() < 0.2


def test_a_broken_kernel_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Momenta have a standard deviation of 1.2, but the accept step assumes 1."""
    drawn = base.standard_normal
    monkeypatch.setattr(base, "standard_normal", lambda *a: jax.tree.map(lambda x: 1.2 * x, drawn(*a)))
    sample(tmp_path)
    found = verdicts(tmp_path, "E2")
    assert found.pop("shape of the states") == found.pop("shape when merged") == HOLDS
    assert {"sd of the first", "sd of the second"} <= {name for name, verdict in found.items() if verdict == FAILED}


def test_a_kernel_that_takes_every_proposal_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly any proposal is rejected at the published step size, so only the coarse steps detect this."""
    monkeypatch.setattr(trajectory, "keep_computed", lambda x: jnp.ones_like(x) if x.dtype == bool else x)
    sample(tmp_path)
    found = verdicts(tmp_path, "E2")
    assert [name for name, verdict in found.items() if verdict == FAILED] == [
        "sd of the first, steps of 1.4", "sd of the second, steps of 1.4"
    ]  # fmt: skip


@pytest.fixture
def collected(tmp_path: Path) -> Any:
    """Return a function that evaluates sums and densities, stores them, and gives the verdicts of both claims."""

    def collect() -> dict[str, str]:
        for table, rows in devices.Collectives().prepare({"seed": 11}).items():
            write_rows(BenchmarkLayout(tmp_path).table(f"tutorial-{table}"), rows)
        return {**verdicts(tmp_path, "E1"), **verdicts(tmp_path, "E3")}

    return collect


def test_sums_and_densities_hold(collected: Any) -> None:
    assert set(collected().values()) == {HOLDS}


def test_made_up_sums_and_unsummed_densities_fail(collected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "sum_over_devices", lambda x: 0 * x + 28)
    monkeypatch.setattr(devices.tfed, "Sharded", lambda distribution, shard_axis_name: distribution)
    found = collected()
    single, joint = "sharded over plain", "sharded over plain, joint distribution"
    failed = {name for name, verdict in found.items() if verdict == FAILED}
    assert failed == {"smallest", "largest", "different draws on 8 shards", single, joint}


def test_rounded_factors_change_the_density_and_its_gradient() -> None:
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((5, 3)).astype(np.float32)
    features, labels = generator.random((40, 5)).astype(np.float32), generator.integers(0, 3, 40)
    both = jax.value_and_grad(precision.log_density)
    value, gradient = both(weights, features, labels, "highest")
    rough, rough_gradient = both(weights, features, labels, "bfloat16")
    assert 1e-4 < abs(float(rough - value)) < 1.0
    np.testing.assert_allclose(rough_gradient, gradient, atol=0.3)
    assert np.abs(rough_gradient - gradient).max() > 1e-3
