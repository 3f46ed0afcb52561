"""What the rules for benchmarks, claims and studies ask."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from bayesmesh.planning.plan import Plan
from bayesmesh.reproduction import planning

GOOD = "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"
CLAIM = """
sources: {s: {title: A piece}}
claims:
  X1:
    source: s
    statement: a
    kind: hardware
    numbers:
      it: {published: "1", hardware: none, measure: {file: benchmarks/some.csv, column: c}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that runs one experiment and reproduces another."""
    folder = tmp_path / "config"
    (folder / "experiments").mkdir(parents=True)
    (folder / "config.yaml").write_text("experiments: [a]\nreproduce: [b]\n")
    for name in "ab":
        (folder / "experiments" / f"{name}.yaml").write_text(GOOD)
    return folder


def _plan(config: Path, target: str) -> Plan:
    resources = SimpleNamespace(cores=2, overwrite_resources={})
    workflow = SimpleNamespace(
        dag_settings=SimpleNamespace(targets={target}), local_exec=False, resource_settings=resources
    )
    return Plan(str(config), str(config.parent / "results"), workflow=workflow)


def test_claims_are_held_against_what_is_there_or_against_all_that_reproduce_makes(config: Path) -> None:
    (config / "claims.yaml").write_text(CLAIM)
    alone = _plan(config, "claims")
    assert planning.claims_inputs(alone) == []
    before = planning.claims_digest(alone)
    table = Path(alone.results) / "benchmarks" / "some.csv"
    table.parent.mkdir(parents=True)
    table.touch()
    assert planning.claims_inputs(alone) == []
    assert planning.claims_digest(alone) != before
    whole = _plan(config, "reproduce")
    made = planning.reproduced(whole)
    assert planning.claims_inputs(whole) == made
    assert {whole.layout("b").page, planning.benchmark_layout(whole).page} < set(made)
    digest = planning.claims_digest(whole)
    (config / "claims.yaml").write_text(CLAIM + "# more\n")
    assert planning.claims_digest(whole) != digest


def test_each_rule_has_the_fingerprint_of_its_own_code(config: Path) -> None:
    codes = [planning.code_of_benchmark(name) for name in planning.benchmark_names()]
    codes += [planning.code_of_benchmark_page(), planning.code_of_study(), planning.code_of_claims()]
    assert len(set(codes)) == len(codes) > 5
    assert '"quick":false' in planning.benchmark_settings(_plan(config, "all"))
