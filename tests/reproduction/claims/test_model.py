"""A wrong constant in a model, a wrong prior or a typed number turns its claims red: the published hidden Markov model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytensor
import pytest
from tensorflow_probability.substrates.jax import distributions as tfd

from bayesmesh.models import hidden_markov
from bayesmesh_reproduction.benchmarks.hidden_markov.exact import Exact, ExactInPymc
from bayesmesh_reproduction.benchmarks.history import write_rows
from bayesmesh_reproduction.claims.declaration import CLAIMS
from bayesmesh_reproduction.claims.judge import FAILED, HOLDS, judge_all
from bayesmesh_reproduction.layout import BenchmarkLayout

NAMES = ("D1", "D2", "D3", "D4")
OLD_SEED = 1_600_000_000_000_000_000

Rows = list[dict[str, Any]]


def evaluate(seed: int | None = None) -> Rows:
    """Return the rows of our model."""
    found: Rows = Exact().prepare({"seed": seed or time.time_ns()})["rows"]
    return found


@pytest.fixture(scope="module")
def right() -> Rows:
    """Rows of our model and of PyMC, from PyTensor's plainest compiler, for these tests are about values."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        return evaluate() + ExactInPymc().prepare({"seed": time.time_ns()})["rows"]


def failed(results: Path, rows: Rows) -> dict[str, str]:
    """Store the rows, judge, and return which numbers fail and why; all others must hold."""
    write_rows(BenchmarkLayout(results).table("hidden_markov-exact"), rows)
    found = judge_all(results, tuple(claim for claim in CLAIMS if claim.name in NAMES))
    assert len(found) == 12
    assert {finding.verdict for finding in found} <= {FAILED, HOLDS}
    return {f"{f.claim.name} {f.number.name}": f.reason for f in found if f.verdict == FAILED}


def test_model_and_pymc_have_the_published_digits(tmp_path: Path, right: Rows) -> None:
    assert not failed(tmp_path, right)


def test_a_wrong_constant_in_the_model_fails(tmp_path: Path, right: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    means = hidden_markov._means
    monkeypatch.setattr(hidden_markov, "_means", lambda latents: 1.0001 * means(latents))
    rows = evaluate() + [row for row in right if row["by"] == "PyMC"]
    assert {"D1 nats", "D2 nats", "D3 nats"} <= failed(tmp_path, rows).keys()


def test_a_wrong_prior_of_the_model_fails(tmp_path: Path, right: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its terms alone: a signal of 4 times the scale, a noise of 5 times, a Dirichlet(3)."""
    monkeypatch.setattr(hidden_markov, "tfd", _Wrong())
    (seed,) = {int(row["seed"]) - 1 for row in right if row["case"] == "probe-1" and row["by"] == "model"}
    wrong = evaluate(seed) + [row for row in right if row["by"] == "PyMC"]
    terms = {"signal": "signal", "noise": "noise", "initial": "initial probabilities", "transition": "transition rows"}
    for term, name in terms.items():
        pairs = zip(right, wrong, strict=True)
        rows = [false if false["quantity"] == f"log_prior_{term}" else true for true, false in pairs]
        assert f"D4 {name}, the model here" in failed(tmp_path, rows)


class _Wrong:
    """TFP's distributions, but for those of the prior."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tfd, name)

    def Normal(self, loc: Any, scale: Any) -> Any:
        return tfd.Normal(loc, 4 * scale)

    def HalfNormal(self, scale: Any) -> Any:
        return tfd.HalfNormal(5 * scale)

    def Dirichlet(self, flat: Any) -> Any:
        return tfd.Dirichlet(3 * flat)


def _without_probes(rows: Rows) -> Rows:
    """The published points alone."""
    return [row for row in rows if not row["seed"]]


def _constant_points(rows: Rows) -> Rows:
    """Right numbers at points that nobody drew."""
    return [{**row, "seed": ""} for row in rows]


def _points_of_another_run(rows: Rows) -> Rows:
    """Right numbers at points that were drawn, long ago."""
    return [row for row in rows if not row["seed"]] + [row for row in evaluate(OLD_SEED) if row["seed"]]


def _points_of_another_seed(rows: Rows) -> Rows:
    """Right numbers at those points, under a seed of today."""
    now = str(time.time_ns())
    return [{**row, "seed": row["seed"] and now} for row in rows]


def _typed_values(rows: Rows) -> Rows:
    """Today's points with the values of others."""
    old = {(row["quantity"], row["case"], row["by"]): row["value"] for row in evaluate(OLD_SEED)}
    return [{**row, "value": old.get((row["quantity"], row["case"], row["by"]), row["value"])} for row in rows]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (_without_probes, "at no point that was drawn in the run"),
        (_constant_points, "at no point that was drawn in the run"),
        (_points_of_another_run, "was not drawn in the run"),
        (_points_of_another_seed, "is not the point of seed"),
        (_typed_values, "and NumPy gives"),
    ],
)
def test_numbers_that_were_typed_in_fail(tmp_path: Path, right: Rows, typed: Callable[[Rows], Rows], said: str) -> None:
    found = failed(tmp_path, typed(right))
    assert len(found) == 12
    assert any(said in reason for reason in found.values())


def test_pymc_is_drawn_for_too(tmp_path: Path, right: Rows) -> None:
    """Our drawn points say nothing of what was typed for PyMC."""
    found = failed(tmp_path, [row for row in right if row["by"] == "model" or not row["seed"]])
    assert found.keys() == {
        "D4 " + name for name in ("signal", "noise", "initial probabilities", "transition rows", "likelihood")
    }
