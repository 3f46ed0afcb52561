"""The rules themselves: what each declares, and that nothing of the configuration reaches a shell unquoted."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    ROOT / "Snakefile",
    ROOT / "workflow" / "Snakefile",
    *sorted(ROOT.glob("workflow/rules/*.smk")),
    ROOT / "src" / "bayesmesh_reproduction" / "rules.smk",
]

RULES = {
    (file.name, found[1]): found[2]
    for file in FILES
    for found in re.finditer(r"^rule (\w+):\n((?:(?:    .*)?\n)+)", file.read_text(), re.M)
}
"""(file, rule) -> its text."""

ANALYSES = ROOT / "workflow" / "rules" / "analyse.smk"
RULES[ANALYSES.name, "analyse"] = textwrap.indent(
    textwrap.dedent(ANALYSES.read_text().partition("    rule:\n")[2]), "    "
)

TARGETS = {"all", "quickstart", "reproduce", "benchmarks"}
WORKING = {key: text for key, text in RULES.items() if key[1] not in TARGETS}


OF_REPRODUCTION = {
    "study": 'config="stopping", code=reproduction.code("studies/*.py"),',
    "claims": 'config=lambda wildcards: reproduction.claims_digest(PLAN), code=reproduction.code( "claims/*", "pages/claims.py", "pages/templates/claims.html" ),',
    "benchmark": "config=REPRODUCTION.benchmarks.model_dump_json(), code=lambda wildcards: reproduction.code_of_benchmark(wildcards.benchmark),",
    "sweep": 'config=lambda wildcards: overviews.sweep_settings(PLAN, wildcards.sweep), code=PLAN.code_of("report"),',
    "benchmark_page": 'config="page", code=reproduction.code("pages/benchmarks.py", "pages/templates/benchmarks.html"),',
}
"""Rules beside the flow -> their params."""


def test_there_is_a_rule_for_every_stage() -> None:
    from bayesmesh.workflow.flow import LATER, STAGES

    stages = {*STAGES, "analyse"} - set(LATER)
    assert {name for _, name in WORKING} == {
        *stages,
        "index",
        "sweep",
        "study",
        "claims",
        "benchmark",
        "benchmark_page",
    }


@pytest.mark.parametrize(("file", "rule"), WORKING, ids=[rule for _, rule in WORKING])
@pytest.mark.parametrize("part", ["output", "log", "conda", "params", "message", "shell"])
def test_every_rule_declares(file: str, rule: str, part: str) -> None:
    assert re.search(rf"^    {part}:\n", WORKING[file, rule], re.M)


@pytest.mark.parametrize(("file", "rule"), WORKING, ids=[rule for _, rule in WORKING])
def test_params_are_the_configuration_and_the_code(file: str, rule: str) -> None:
    text = WORKING[file, rule].partition("    params:\n")[2].partition("    message:")[0]
    if rule == "index":
        assert text.split() == [
            "config=lambda",
            "wildcards:",
            "overviews.index_settings(PLAN),",
            'code=PLAN.code_of("report"),',
        ]
    elif rule in OF_REPRODUCTION:
        assert " ".join(text.partition("#")[0].split()) == OF_REPRODUCTION[rule]
    elif rule == "analyse":
        params = "config=PLAN.trigger(_analysis.stage), spec=PLAN.spec(_analysis.stage), code=PLAN.code(_analysis.stage), verb=_analysis.command,"
        assert " ".join(text.split()) == params
        assert "bayesmesh {params.verb:q} --spec {params.spec:q}" in WORKING[file, rule]
    else:
        assert text.split() == [
            f'config=PLAN.trigger("{rule}"),',
            f'spec=PLAN.spec("{rule}"),',
            f'code=PLAN.code("{rule}"),',
            # The user's files that the source reads, by content.
            *(["files=PLAN.input_files,"] if rule == "fetch" else []),
        ]
        assert f"bayesmesh {rule} --spec {{params.spec:q}}" in WORKING[file, rule]


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_nothing_reaches_a_shell_unquoted(file: Path) -> None:
    for shell in re.findall(r"^ +shell:\n((?:        .*\n)+)", file.read_text(), re.M):
        for name in re.findall(r"\{([^}]*)\}", shell):
            assert name == "threads" or name.endswith(":q"), f"{{{name}}} in {shell}"
        assert not re.search(r"\{(config|wildcards)\b(?![^}]*:q)", shell)
    assert "run:" not in file.read_text()
    assert "configfile" not in file.read_text(), "Snakemake would execute a configuration with __use_yte__"


def test_chains_are_never_declared_outputs() -> None:
    """Snakemake removes the outputs of a failed job."""
    outputs = "".join(text.partition("    log:")[0] for text in RULES.values())
    assert "draws.zarr" not in outputs
    assert "checkpoint" not in outputs


def test_lint_is_clean(fresh: Any, tmp_path: Path) -> None:
    done = fresh(tmp_path / "copy").snakemake("--lint")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Congratulations" in done.stdout + done.stderr
