"""Find the source files and templates that a stage runs, for the fingerprint of its code."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.config.declarations import declared
from bayesmesh.config.model_code import LATER as LATER_MEMBERS
from bayesmesh.config.model_code import digest_without
from bayesmesh.config.registry import PACKAGES, component_files, component_path, list_components
from bayesmesh.config.source_imports import PACKAGE_ROOT, fingerprint, save_memory, source_closure
from bayesmesh.planning.specs import COMPONENTS, KEYS, LATER, STAGES, StageSpec

_STAGES = PACKAGE_ROOT / "stages"


def files_without_components(stage: str) -> list[Path]:
    """Return the files of a stage without those of models, kernels, sources and analyses."""
    return [*source_closure([_STAGES / f"{stage}.py"]), *_templates(stage)]


def read_stages() -> None:
    """Read the files of all stages and built-in components, so that this process, and its forks, need not parse them."""
    components = [component_path(kind, name) for kind in PACKAGES for name in list_components(kind)]
    stages = [_STAGES / f"{stage}.py" for stage in STAGES if stage not in LATER]
    fingerprint(source_closure([*stages, *components]))
    save_memory()


def stage_fingerprint(spec: StageSpec) -> str:
    """Return the fingerprint of what a job of a stage runs, the same when it is planned and in the job itself.

    Of a model, `compile` and `sample` run what draws depend on, and `sample` what a stopping rule monitors.
    """
    files = stage_files(spec)
    if spec.stage not in ("compile", "sample"):
        return fingerprint(files)
    return fingerprint(files, digest_without(files, LATER_MEMBERS - ({"summaries"} if _is_monitored(spec) else set())))


def code_key(spec: StageSpec) -> tuple[object, ...]:
    """Return what the files of a stage depend on, the same for jobs that run the same code."""
    whole = [spec.config, *spec.others.values()]
    components = [
        f for kind in COMPONENTS[spec.stage] for config in whole for f in component_files(kind, config[KEYS[kind]])
    ]
    asked = [key for key in LATER.values() if spec.config.get(key) is not None]
    return spec.stage, _is_monitored(spec), *components, *asked


def stage_files(spec: StageSpec) -> list[Path]:
    """Return the files that a job of a stage runs."""
    stage = spec.stage
    whole = [spec.config, *spec.others.values()]
    components = [
        f for kind in COMPONENTS[stage] for config in whole for f in component_files(kind, config[KEYS[kind]])
    ]
    if stage in LATER:
        analysis = declared(LATER[stage])
        # The section of a folder belongs to the page, so changing it does not run the analysis again.
        apart = {analysis.section_file} - {analysis.path}
        return source_closure([_STAGES / "analyse.py", analysis.path, *components], without=apart)
    entries = [_STAGES / f"{stage}.py", *components]
    if _is_monitored(spec):
        entries.append(_STAGES / "stop_rule.py")
    asked = [declared(key) for key in LATER.values() if stage == "report" and spec.config.get(key) is not None]
    entries += [each.section_file for each in asked]
    return [*source_closure(entries), *(file for each in asked for file in each.templates), *_templates(stage)]


def _is_monitored(spec: StageSpec) -> bool:
    return spec.stage == "sample" and spec.config["sampling"].get("stop") is not None


def _templates(stage: str) -> list[Path]:
    """Return the templates of the pages, and the words of the gates."""
    pages = ("figures/templates", "report/templates", "diagnostics")
    folders = {"report": pages, "sweep": pages, "diagnose": ("diagnostics",)}
    shown = (".html", ".css", ".js", ".mplstyle", ".yaml")
    found = (path for folder in folders.get(stage, ()) for path in (PACKAGE_ROOT / folder).glob("*.*"))
    return sorted(path for path in found if path.suffix in shown)
