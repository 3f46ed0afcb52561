"""An edit changes the stages that the page on reliability names, and no others."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config import blocks, registry, source_code, versions
from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.registry import forget_files
from bayesmesh.errors import ConfigError
from bayesmesh.sampling.loop.identity import chain_identity
from bayesmesh.workflow import code as code_of_stages
from bayesmesh.workflow.code import check_code, component_code, stage_code
from bayesmesh.workflow.flow import stages_of
from bayesmesh.workflow.jobs import make_job

RELIABILITY = Path(__file__).parents[3] / "docs" / "explanation" / "reliability.md"

OPTIONS = "from bayesmesh.config.settings import Settings\n\n\nclass Options(Settings):\n    pass\n\n\n"
OWN = {
    "study/__init__.py": "",
    "study/models/__init__.py": "",
    "study/models/growth.py": f"from study.models.parts import scale\n{OPTIONS}class Growth:\n    pass  # a comment\n",
    "study/models/parts.py": "def scale():\n    return 2\n",
    "study/sources/rows.py": f"{OPTIONS}class Rows:\n    pass\n",
    "study/analyses/tails.py": OPTIONS
    + "class Tails(Analysis):\n    pretty_name = 'Tails'\n    outputs = ('tails.csv',)\n    reads = ('posterior',)\n",
    "study/helpers.py": "ONE = 1\n",
    "beside.py": f"{OPTIONS}class Beside:\n    pass\n",
    "other.py": "TWO = 2\n",
}

CONFIG: dict[str, Any] = {
    "title": "Some", "data": {"source": "digits"}, "model": {"name": "glm", "formula": "y ~ x"},
    "kernel": {"name": "hmc", "metric": "diagonal"}, "averaging": {}, "loo": {}, "gates": {}, "report": {}, "sampling": {}, "compute": {},
}  # fmt: skip
GROWTH = {"model": {"name": "study.models.growth:Growth"}}
BESIDE = {"model": {"name": "beside:Beside"}}
ROWS = {"data": {"source": "study.sources.rows:Rows"}}
TAILS = {"analyses": {"study.analyses.tails:Tails": {}}}

CHAINS = {"compile", "sample", "chains"}
MODEL = {*CHAINS, "assemble", "average", "loo"}
DATA = {"fetch", "shard", *CHAINS, "assemble", "average", "loo", "report"}


def set_key(config: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    *parents, last = key.split(".")
    block = changed
    for name in parents:
        block = block.setdefault(name, {})
    block[last] = value
    return changed


def digests(config: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return stage -> digests of its settings and its code, and the identity of the chains."""
    forget_files()
    some = experiment_class().model_validate(config)
    specs = {stage: make_job(stage, "some", some, "results") for stage in stages_of(some)}
    found: dict[str, tuple[str, ...]] = {spec.word: (spec.digest, stage_code(spec)) for spec in specs.values()}
    sample = specs["sample"]
    # The identity has the digest of the data, which follows from the settings of these two stages.
    data = found["fetch"][0] + found["shard"][0]
    return {**found, "chains": (chain_identity(sample.config, component_code(sample), data, sample.num_chains),)}


def differences(one: dict[str, tuple[str, ...]], other: dict[str, tuple[str, ...]]) -> set[str]:
    return {stage for stage in one.keys() | other.keys() if one.get(stage) != other.get(stage)}


SETTINGS: list[tuple[str, object, set[str]]] = [
    ("title", "Other", {"report"}),
    ("report.caption", "A paragraph", {"report"}),
    ("gates.ess_bulk", 40, {"diagnose", "report"}),
    ("averaging.calibration_bins", 10, {"average", "report"}),
    ("posterior.probe_rows", 5, {"assemble", "report"}),
    ("sampling.draws", 5000, {"sample", "assemble", "report"}),
    ("sampling.stop", {"min_ess_bulk": 400.0}, {"sample", "report"}),
    ("sampling.seed", 2, {"sample", "chains", "report"}),
    ("sampling.segment_seconds", 5.0, {"report"}),
    ("sampling.grace_seconds", 7.0, {"report"}),
    ("kernel.target_acceptance", 0.9, {*CHAINS, "report"}),
    ("kernel.name", "nuts", {*CHAINS, "report"}),
    ("model.formula", "y ~ 1", {*MODEL, "report"}),
    ("compute.dtype", "float64", {*MODEL, "report"}),
    ("data.held_out_fraction", 0.3, {*DATA} - {"fetch"}),
    ("data.split_seed", 3, {*DATA} - {"fetch"}),
    ("data.test_fraction", 0.3, DATA),
]


@pytest.mark.parametrize(("key", "value", "stages"), SETTINGS, ids=[key for key, *_ in SETTINGS])
def test_a_setting_changes_the_stages_that_read_it(key: str, value: object, stages: set[str]) -> None:
    assert differences(digests(CONFIG), digests(set_key(CONFIG, key, value))) == stages


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project of a user with a copy of the package."""
    root = tmp_path_factory.mktemp("project")
    package = root / "bayesmesh"
    shutil.copytree(source_code.PACKAGE_ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in OWN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_code, "PACKAGE_ROOT", package)
        patch.setattr(registry, "_ROOT", package)
        patch.setattr(blocks, "_METRICS", package / "kernels" / "hamiltonian" / "metrics")
        patch.chdir(root)
        yield root
    forget_files()


EDITS: list[tuple[dict[str, Any], str, set[str]]] = [
    (GROWTH, "study/models/growth.py", MODEL),
    (GROWTH, "study/models/parts.py", MODEL),
    (GROWTH, "study/models/new_file.py", MODEL),
    (GROWTH, "study/helpers.py", set()),
    (GROWTH, "study/analyses/tails.py", set()),
    (GROWTH | TAILS, "study/analyses/tails.py", {"tails", "report"}),
    (ROWS, "study/sources/rows.py", {"fetch", "shard"}),
    (BESIDE, "beside.py", MODEL),
    (BESIDE, "other.py", set()),
    ({}, "bayesmesh/models/glm/model.py", MODEL),
    ({}, "bayesmesh/models/glm/__init__.py", MODEL),
    ({}, "bayesmesh/models/gaussian.py", set()),
    ({}, "bayesmesh/models/base.py", set()),
    ({}, "bayesmesh/kernels/hmc.py", CHAINS),
    ({}, "bayesmesh/kernels/hamiltonian/metrics/diagonal.py", CHAINS),
    ({}, "bayesmesh/kernels/hamiltonian/metrics/dense.py", set()),
    ({}, "bayesmesh/kernels/nuts.py", set()),
    ({}, "bayesmesh/data/sources/digits.py", {"fetch", "shard"}),
    ({}, "bayesmesh/analyses/averaging/section.py", {"average", "report"}),
    ({}, "bayesmesh/analyses/averaging/scores.py", {"average", "report"}),
    ({}, "bayesmesh/sampling/program/chain_group.py", set()),
    ({}, "bayesmesh/report/page.py", set()),
]


@pytest.mark.parametrize(("changes", "file", "stages"), EDITS, ids=[f"{file} {[*some]}" for some, file, _ in EDITS])
def test_an_edit_changes_the_stages_that_name_the_component(
    project: Path, changes: dict[str, Any], file: str, stages: set[str]
) -> None:
    config, path = CONFIG | changes, project / file
    before, text = digests(config), path.read_text() if path.exists() else None
    path.write_text((text or "") + "\n# A comment.\n")
    same = digests(config)
    path.write_text((text or "") + "\nA_CHANGE = 1\n")
    after = digests(config)
    path.unlink() if text is None else path.write_text(text)
    if text is not None:
        assert differences(before, same) == set()
    assert differences(before, after) == stages


@pytest.mark.parametrize("stage", ["compile", "diagnose", "report"])
def test_a_raised_version_changes_its_stage(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    before = digests(CONFIG)
    monkeypatch.setitem(code_of_stages.VERSIONS, stage, "99")
    assert differences(before, digests(CONFIG)) == {stage}


def test_every_stage_has_a_version() -> None:
    named = {name for name, value in vars(versions).items() if isinstance(value, int)}
    assert named == {"FETCH", "SHARD", "COMPILE", "DRAWS", "SAMPLE", "ASSEMBLE", "DIAGNOSE", "ANALYSE", "REPORT"}
    plain = {key: CONFIG[key] for key in ("title", "data", "model", "kernel")}
    assert list(versions.VERSIONS) == stages_of(experiment_class().model_validate(plain))


ROWS_OF_TABLE: dict[str, list[str]] = {
    "`report.caption`": ["report.caption"],
    "`gates`": ["gates.ess_bulk"],
    "an analysis, such as `averaging` or `loo`, or its code": ["averaging.calibration_bins"],
    "`posterior`": ["posterior.probe_rows"],
    "a higher `sampling.draws` or a stricter `sampling.stop`": ["sampling.draws", "sampling.stop"],
    "model, kernel, metric, prior, seed, or their code": ["model.formula", "kernel.name", "sampling.seed"],
    "`data` or its options, a declared file, or the code of the source": ["data.test_fraction"],
    "`data.held_out_fraction`, `data.split_seed`": ["data.held_out_fraction", "data.split_seed"],
}
"""First column of the table of the page -> settings above that show it."""

FIRST = {
    "fetch": "all stages", "shard": "shard", "compile": "sample starts new chains", "sample": "sample", "assemble": "assemble",
    "diagnose": "diagnose", "average": "that analysis", "report": "the report",
}  # fmt: skip
"""First stage that runs again, in the order of the flow -> how the table says so."""


def test_the_table_of_changes_is_what_the_settings_above_show() -> None:
    table = RELIABILITY.read_text(encoding="utf-8").partition("## Change one thing")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (.*?) \| (.*) \|$", table, re.MULTILINE)[1:])
    shown = {key: stages for key, _, stages in SETTINGS}
    assert ROWS_OF_TABLE.keys() <= rows.keys()
    for row, keys in ROWS_OF_TABLE.items():
        for key in keys:
            # Later stages follow from their inputs.
            first = next(stage for stage in FIRST if stage in shown[key])
            assert FIRST[first] in rows[row], key


def test_code_that_was_edited_after_planning_is_named(project: Path) -> None:
    spec = make_job("sample", "some", experiment_class().model_validate(CONFIG | GROWTH), "results")
    planned, path = stage_code(spec), project / "study/models/parts.py"
    assert check_code(spec, planned) == check_code(spec, "") == planned
    text = path.read_text()
    path.write_text("def scale():\n    return 3\n")
    with pytest.raises(ConfigError, match=rf"the code of sample was edited .*{project}/study/models/growth\.py"):
        check_code(spec, planned)
    path.write_text(text)
    assert check_code(spec, planned) == planned
