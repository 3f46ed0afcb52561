"""The phases of the primer, and its claim, which wrong or made-up numbers fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh_reproduction.benchmarks import primer
from bayesmesh_reproduction.benchmarks.history import write_rows
from bayesmesh_reproduction.claims.declaration import CLAIMS
from bayesmesh_reproduction.claims.judge import FAILED, HOLDS, Finding, judge_all
from bayesmesh_reproduction.layout import BenchmarkLayout


@pytest.mark.parametrize("work", ["product", "selu"])
def test_both_tasks_agree_in_numpy_and_jax(work: str) -> None:
    x = primer._input({"work": work, "n": 7})
    expected = primer.make_work(work, np)(x)
    np.testing.assert_allclose(primer.make_work(work, jnp)(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6)
    assert expected.dtype == np.float32


def test_every_phase_has_a_time() -> None:
    for is_compiled in (True, False):
        contender = primer.JaxWork(is_compiled=is_compiled)
        facts = contender.prepare({"work": "selu", "n": 64})
        wanted = set(primer.PHASES) if is_compiled else {"transfer_s", "first_s", "back_s"}
        assert {name for name in facts if name.endswith("_s")} == wanted
        assert all(facts[name] > 0 for name in wanted)
        assert contender.run(0) == {}
    assert primer.NumpyWork().prepare({"work": "product", "n": 5})["first_s"] > 0


def judge(results: Path) -> list[Finding]:
    rows = primer.Gradient().prepare({"seed": 5})["rows"]
    write_rows(BenchmarkLayout(results).table("primer-gradient"), rows)
    return judge_all(results, tuple(c for c in CLAIMS if c.name == "B4"))


def test_gradient_has_the_published_digits(tmp_path: Path) -> None:
    assert [finding.verdict for finding in judge(tmp_path)] == [HOLDS] * 3


def wrong_constant(x: Any) -> Any:
    return jnp.sum(1.0 / (1.0 + jnp.exp(-1.001 * x)))


def made_up(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the published numbers, whatever the function and the point."""
    del function
    return lambda x: np.resize(np.array([0.25, 0.19661197, 0.10499357], np.float32), x.shape)


def test_a_wrong_constant_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primer, "sum_logistic", wrong_constant)
    assert [finding.verdict for finding in judge(tmp_path)] == [FAILED] * 3


def test_made_up_numbers_fail_even_if_they_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.grad", made_up)
    findings = judge(tmp_path)
    assert [finding.verdict for finding in findings] == [FAILED] * 3
    assert findings[0].ours.value == 0.25
    assert "and NumPy gives" in findings[0].reason
