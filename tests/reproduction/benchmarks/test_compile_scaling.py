"""Both arms give the same integral, only one program grows, and the stored programs prove it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.files import write_json
from bayesmesh_reproduction.benchmarks.compile_scaling import JNP_SUM, PYTHON_SUM, Compilation, Uncompiled, _texts
from bayesmesh_reproduction.benchmarks.harness import Measurement, Outcome
from bayesmesh_reproduction.benchmarks.history import write_outcome
from bayesmesh_reproduction.claims.declaration import CLAIMS
from bayesmesh_reproduction.claims.judge import FAILED, HOLDS, Finding, judge_all
from bayesmesh_reproduction.layout import BenchmarkLayout


@pytest.fixture(scope="module")
def measured() -> list[Measurement]:
    found = []
    for n in (10, 20):
        for arm in (PYTHON_SUM, JNP_SUM):
            contender = Compilation(arm=arm)
            facts = contender.prepare({"n": n})
            found.append(Measurement({"n": n}, arm, seconds=[0.1], facts={**facts, **contender.run(0)}))
    return found


def test_arms_give_the_same_integral_and_one_program_grows(measured: list[Measurement]) -> None:
    python_few, jnp_few, python_many, jnp_many = (m.facts for m in measured)
    assert python_many["equations"] - python_few["equations"] >= 10
    assert jnp_many["equations"] == jnp_few["equations"]
    assert python_many["value"] == pytest.approx(jnp_many["value"], rel=1e-4)
    assert 0 < jnp_many["trace_s"] < jnp_many["build_s"] == jnp_many["seconds"]
    # The closed form is a normal density of the two means; on a fine grid the error is far below the tolerance.
    exact = np.exp(-0.5 * 9 / 5) / np.sqrt(2 * np.pi * 5)
    assert Uncompiled().prepare({"n": 2001})["value"] == pytest.approx(exact, rel=1e-3)


def judge(results: Path, measured: list[Measurement]) -> Finding:
    layout = BenchmarkLayout(results)
    path = layout.folder / "compile_scaling-programs.json"
    write_json(path, _texts(measured))
    rows = [{k: v for k, v in m.row().items() if k != "text"} for m in measured]
    write_outcome(layout, "compile_scaling", Outcome(rows, files=(path,)))
    (claim,) = (c for c in CLAIMS if c.name == "C2")
    return judge_all(results, (claim,))[0]


def test_a_constant_number_of_equations_is_counted_in_the_stored_programs(
    tmp_path: Path, measured: list[Measurement]
) -> None:
    finding = judge(tmp_path, measured)
    assert (finding.verdict, finding.ours.value, finding.again) == (HOLDS, 1.0, 1.0)
    # A constant that differs from the count in the stored programs.
    made_up = [dataclasses.replace(m, facts={**m.facts, "equations": 12}) for m in measured]
    finding = judge(tmp_path, made_up)
    assert (finding.verdict, "and the program has 27" in finding.reason) == (FAILED, True)
