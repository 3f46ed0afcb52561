"""The rules themselves: what each declares, and that nothing of the configuration reaches a shell unquoted."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "Snakefile", ROOT / "workflow" / "Snakefile", *sorted((ROOT / "workflow" / "rules").glob("*.smk"))]

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
    "study": 'config="stopping", code=reproduction.code_of_study(),',
    "claims": "config=lambda wildcards: reproduction.claims_digest(PLAN), code=reproduction.code_of_claims(),",
    "benchmark": "config=reproduction.benchmark_settings(PLAN), code=lambda wildcards: reproduction.code_of_benchmark(wildcards.benchmark),",
    "benchmark_page": 'config="page", code=reproduction.code_of_benchmark_page(),',
}
"""Rules beside the flow -> their params."""


def test_there_is_a_rule_for_every_stage() -> None:
    from bayesmesh.planning.specs import LATER, STAGES

    stages = {*STAGES, "analyse"} - set(LATER)
    assert {name for _, name in WORKING} == {*stages, "index", "study", "claims", "benchmark", "benchmark_page"}


def test_every_rule_declares() -> None:
    parts = ("output", "log", "benchmark", "conda", "params", "message", "shell")
    missing = [
        f"{file}: rule {rule} has no {part}"
        for (file, rule), text in WORKING.items()
        for part in parts
        if not re.search(rf"^    {part}:\n", text, re.M)
    ]
    assert not missing, "\n".join(missing)


def _params(rule: str) -> str:
    """The params that a rule should have: exactly its configuration and its code."""
    if rule == "index":
        return 'config=lambda wildcards: PLAN.titles(), code=PLAN.code_of("report"),'
    if rule == "analyse":
        return "config=PLAN.spec(_analysis.verb), code=PLAN.code(_analysis.verb), verb=_analysis.verb,"
    return OF_REPRODUCTION.get(rule, f'config=PLAN.spec("{rule}"), code=PLAN.code("{rule}"),')


def test_params_are_the_configuration_and_the_code() -> None:
    wrong = []
    for (file, rule), text in WORKING.items():
        params = text.partition("    params:\n")[2].partition("    message:")[0].partition("#")[0]
        if " ".join(params.split()) != _params(rule):
            wrong.append(f"{file}: rule {rule} has params {params}")
        verb = {"analyse": "{params.verb:q}"}.get(rule, rule)
        if (
            rule not in OF_REPRODUCTION
            and rule != "index"
            and f"bayesmesh {verb} --spec {{params.config:q}}" not in text
        ):
            wrong.append(f"{file}: rule {rule} does not call bayesmesh {verb} with its spec")
    assert not wrong, "\n".join(wrong)


def test_nothing_reaches_a_shell_unquoted() -> None:
    wrong = []
    for file in FILES:
        text = file.read_text()
        for shell in re.findall(r"^ +shell:\n((?:        .*\n)+)", text, re.M):
            names = [
                name for name in re.findall(r"\{([^}]*)\}", shell) if name != "threads" and not name.endswith(":q")
            ]
            wrong += [f"{file.name}: {{{name}}} in {shell}" for name in names]
        # Snakemake would execute a configuration with __use_yte__.
        wrong += [f"{file.name}: {word}" for word in ("run:", "configfile") if word in text]
    assert not wrong, "\n".join(wrong)


def test_chains_are_never_declared_outputs() -> None:
    """Snakemake removes the outputs of a failed job."""
    outputs = "".join(text.partition("    log:")[0] for text in RULES.values())
    assert "draws.zarr" not in outputs
    assert "checkpoint" not in outputs


def test_lint_is_clean(fresh: Any, tmp_path: Path) -> None:
    done = fresh(tmp_path / "copy").snakemake("--lint")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Congratulations" in done.stdout + done.stderr
