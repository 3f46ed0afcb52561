"""Find the source files and templates that a stage runs, for the fingerprint of its code."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.config.config_registry import component_files
from bayesmesh.config.config_source_code import PACKAGE_ROOT, fingerprint, source_closure
from bayesmesh.planning.plan_flow import KEYS, analysis_of, components
from bayesmesh.planning.plan_model_code import LATER as LATER_MEMBERS
from bayesmesh.planning.plan_model_code import digest_without
from bayesmesh.planning.plan_specs import StageSpec

_STAGES = PACKAGE_ROOT / "stages"


def files_without_components(stage: str) -> list[Path]:
    """Return the files of a stage without those of models, kernels, sources and analyses."""
    return [*source_closure([_STAGES / f"{stage}.py"]), *_templates(stage)]


def stage_fingerprint(spec: StageSpec) -> str:
    """Return the fingerprint of the code that a job of a stage runs, the same at planning and in the job itself.

    Of a model's code, `compile` and `sample` run only the part on which draws depend, and `sample` also the part that a
    stopping rule monitors.
    """
    files = stage_files(spec)
    if spec.stage not in ("compile", "sample"):
        return fingerprint(files)
    return fingerprint(files, digest_without(files, LATER_MEMBERS - ({"summaries"} if _is_monitored(spec) else set())))


def code_key(spec: StageSpec) -> tuple[object, ...]:
    """Return a key on which the files of a stage depend, the same for jobs that run the same code."""
    asked = [each.name for each in spec.analyses]
    return spec.stage, _is_monitored(spec), *_component_files(spec), *asked


def stage_files(spec: StageSpec) -> list[Path]:
    """Return the files that a job of a stage runs."""
    stage, of_components = spec.stage, _component_files(spec)
    if (analysis := analysis_of(stage)) is not None:
        # The section of a folder belongs to the page, so changing it does not run the analysis again.
        apart = {analysis.section_file} - {analysis.path}
        return source_closure([_STAGES / "analyse.py", analysis.path, *of_components], without=apart)
    entries = [_STAGES / f"{stage}.py", *of_components]
    if _is_monitored(spec):
        entries.append(_STAGES / "stage_stop_rule.py")
    asked = spec.analyses if stage == "report" else []
    entries += [each.section_file for each in asked]
    return [*source_closure(entries), *(file for each in asked for file in each.templates), *_templates(stage)]


def _component_files(spec: StageSpec) -> list[Path]:
    """Return the files of the components whose code the stage runs, including those of other experiments."""
    whole = [spec.config, *spec.others.values()]
    return [f for kind in components(spec.stage) for config in whole for f in component_files(kind, config[KEYS[kind]])]


def _is_monitored(spec: StageSpec) -> bool:
    return spec.stage == "sample" and spec.config["sampling"].get("stop") is not None


def _templates(stage: str) -> list[Path]:
    """Return the templates of the pages, and the words of the gates."""
    pages = ("figures/templates", "report/templates", "diagnostics")
    folders = {"report": pages, "sweep": pages, "diagnose": ("diagnostics",)}
    shown = (".html", ".css", ".js", ".mplstyle", ".yaml")
    found = (path for folder in folders.get(stage, ()) for path in (PACKAGE_ROOT / folder).glob("*.*"))
    return sorted(path for path in found if path.suffix in shown)
