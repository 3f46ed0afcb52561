"""Answers to the rules for benchmarks, claims and studies."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.workflow.plan import Plan
from bayesmesh_reproduction import rules
from bayesmesh_reproduction.claims.inputs import BENCHMARKS
from recording import record_as

GOOD = "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that runs one experiment and reproduces another."""
    folder = tmp_path / "config"
    (folder / "experiments").mkdir(parents=True)
    (folder / "config.yaml").write_text("experiments: [a]\n")
    (folder / "reproduction.yaml").write_text("experiments: [b]\naccelerated: [a]\n")
    for name in "ab":
        (folder / "experiments" / f"{name}.yaml").write_text(GOOD)
    return folder


def _plan(config: Path, target: str, *, is_here: bool = False, **requested: int) -> Plan:
    resources = SimpleNamespace(cores=2, overwrite_resources={"sample": requested})
    workflow = SimpleNamespace(
        dag_settings=SimpleNamespace(targets={target}), local_exec=is_here, resource_settings=resources
    )
    return Plan(str(config), str(config.parent / "results"), workflow=workflow)


def test_claims_read_existing_results_or_all_that_reproduce_makes(config: Path) -> None:
    alone, whole = _plan(config, "claims"), _plan(config, "reproduce")
    settings = rules.read_settings(whole)
    assert rules.claims_inputs(alone, settings) == []
    made = rules.reproduced(whole, settings)
    assert rules.claims_inputs(whole, settings) == made
    assert {whole.layout("b").page, Path(whole.results) / "benchmarks" / "index.html"} < set(made)


def test_published_budgets_are_reproduced_where_chains_run_on_an_accelerator(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(plan: Plan) -> list[str]:
        pages = {plan.page(name): name for name in "ab"}
        return [pages[page] for page in rules.reproduced(plan, rules.read_settings(plan)) if page in pages]

    for is_there in (False, True):
        monkeypatch.setattr(rules, "has_accelerator", lambda environ, found=is_there: found)
        assert names(_plan(config, "reproduce", is_here=True)) == (["b", "a"] if is_there else ["b"])
        assert names(_plan(config, "reproduce")) == ["b"], "jobs may run on machines other than this one"
        assert names(_plan(config, "reproduce", gpu=1)) == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experiments: [bb]\n", "reproduction.yaml: no experiment 'bb'\n  remedy: did you mean 'b'"),
        ("experiment: [b]\n", "unknown key 'experiment'"),
        ("benchmarks: {quick: yes}\n", "key 'benchmarks.quick'"),
    ],
)
def test_wrong_settings_are_named_with_their_file(config: Path, text: str, message: str) -> None:
    (config / "reproduction.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        rules.read_settings(_plan(config, "reproduce"))
    assert message in str(caught.value)


def test_reproduce_runs_the_benchmarks_that_claims_read(config: Path) -> None:
    text = (Path(rules.__file__).parent / "claims" / "published.yaml").read_text(encoding="utf-8")
    read = set(re.findall(r"\bbenchmarks/([a-z_]+)", text))
    assert read == set(BENCHMARKS) < set(rules.list_benchmarks())
    tables = {target: rules.benchmark_tables(_plan(config, target)) for target in ("reproduce", "benchmarks")}
    assert {path.stem for path in tables["reproduce"]} == read
    assert {path.stem for path in tables["benchmarks"]} == set(rules.list_benchmarks())


def test_the_digest_of_claims_follows_tables_and_records(config: Path) -> None:
    plan = _plan(config, "claims")
    results = Path(plan.results)
    table, draws = results / "mnist" / "averaging" / "scores.csv", results / "mnist" / "posterior.sha256"
    table.parent.mkdir(parents=True)

    def write_elsewhere() -> None:
        (results / "other").mkdir()
        (results / "other" / "table.csv").write_text("a")
        record_as(results, "other", "test", [results / "other" / "table.csv"])

    seen = [rules.claims_digest(plan)]
    for change in (
        lambda: table.write_text("a"),
        lambda: record_as(results, "mnist", "average", [table]),
        lambda: table.write_text("edited"),
        lambda: draws.write_text("hashes"),
        write_elsewhere,
    ):
        change()
        seen.append(rules.claims_digest(plan))
    is_new = [after != before for before, after in itertools.pairwise(seen)]
    assert is_new == [True, True, True, True, False]


def test_each_benchmark_has_a_digest_of_its_own_code() -> None:
    codes = [rules.code_of_benchmark(name) for name in rules.list_benchmarks()]
    assert len(set(codes)) == len(codes) > 5
