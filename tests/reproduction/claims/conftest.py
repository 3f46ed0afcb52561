"""Small results whose numbers stages have written: a posterior of softmax regression on digits, averaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.registry import load_component, options_class
from bayesmesh.data.sharding import shard
from bayesmesh.files import write_json, write_text
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import DataLayout, ExperimentLayout
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.components import component_of, make_analysis
from bayesmesh.workflow.jobs import dataset_name, make_job, parse_spec
from bayesmesh.workflow.stages import analyse
from bayesmesh.workflow.stages.recording import recorded
from bayesmesh_reproduction.claims import results as reading
from bayesmesh_reproduction.claims.declaration import Check, Claim, Entry, Piece, Printed, Rule
from bayesmesh_reproduction.claims.judge import Finding, judge_all
from recording import record_as

NAME = "small"


@pytest.fixture(autouse=True, scope="package")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finding]:
    """Return a function of (results, kind, check, published, **other keys of the rule) that judges one number."""
    monkeypatch.setattr(reading, "FOLDERS", (NAME, "table.csv", "verdict.json"))

    def judge(results: Path, kind: Any, check: Check, published: str, **keys: Any) -> Finding:
        machine = {"hardware": "a machine"} if kind == "hardware" else {}
        numbers = {"it": Printed(published=published)}
        entry = Entry(
            statement="a statement", rules=(Rule(kind=kind, check=check, numbers=numbers, **machine, **keys),)
        )
        (finding,) = judge_all(results, [Claim("X1", Piece(title="A piece", claims={"X1": entry}), entry)])
        return finding

    return judge


@pytest.fixture(scope="package")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment of six draws, whose scores the average stage has written."""
    folder = tmp_path_factory.mktemp("claims")
    config = {
        "title": "Small", "data": {"source": "digits"}, "model": {"name": "softmax_regression"},
        "kernel": {"name": "hmc"}, "averaging": {},
    }  # fmt: skip
    experiment = experiment_class().model_validate(config)
    spec = make_job("average", NAME, experiment, str(folder / "results"))
    layout = ExperimentLayout(folder / "results", NAME)
    data = DataLayout(layout.results, dataset_name(spec.config["data"]), "all")
    digits = load_component("source", "digits")(options_class("source", "digits")())
    shard(digits.read(folder), DataSettings(), data)
    record_as(layout.results, f"data/{data.folder.name}/all", "shard", [data.sharded, data.shards])
    write_json(layout.sampled("group-000"), {"identity": "abc"})
    write_json(layout.identity_record("abc"), {"config": spec.config})
    write_draws(layout, seed=1)
    write_text(folder / "average.json", spec.canonical())
    run_average(layout)
    return folder


@pytest.fixture
def averaged(master: Path, tmp_path: Path) -> ExperimentLayout:
    """A copy of that experiment."""
    shutil.copytree(master / "results", tmp_path / "results")
    text = (master / "average.json").read_text().replace(str(master), str(tmp_path))
    write_text(tmp_path / "average.json", text)
    return ExperimentLayout(tmp_path / "results", NAME)


@pytest.fixture
def rerun() -> Callable[[ExperimentLayout], None]:
    """Return a function that runs the average stage of an experiment again."""
    return run_average


@pytest.fixture
def redraw() -> Callable[[ExperimentLayout, int], None]:
    """Return a function of (experiment, seed) that replaces the draws."""
    return write_draws


def run_average(layout: ExperimentLayout) -> None:
    """Run the stage as its verb does."""
    spec = parse_spec(str(layout.results.parent / "average.json"), "average")
    configure_jax(spec.compute)
    with recorded(spec, ""):
        analyse.run(spec, Ledger(Path("unused"), "average"), make_analysis(spec), [component_of(spec, "model")])


def write_draws(layout: ExperimentLayout, seed: int) -> None:
    """Write two chains of three draws, scattered about a template of each class."""
    draw = np.random.default_rng(seed).standard_normal
    group = open_group(layout.posterior, "w").create_group("posterior")
    write_array(group, "weights", draw((2, 3, 64, 10)).astype(np.float32), ("chain", "draw", "feature", "class"))
    write_array(group, "biases", draw((2, 3, 10)).astype(np.float32), ("chain", "draw", "class"))
    record_as(layout.results, NAME, "assemble", [layout.posterior])
