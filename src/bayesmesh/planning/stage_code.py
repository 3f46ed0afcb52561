"""Find the source files and templates that a stage runs, for the fingerprint of its code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.config.declarations import declared
from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.config.model_code import LATER as LATER_MEMBERS
from bayesmesh.config.model_code import digest_without
from bayesmesh.config.registry import component_files
from bayesmesh.config.source_imports import PACKAGE_ROOT, fingerprint, source_closure
from bayesmesh.planning.specs import COMPONENTS, KEYS, LATER

_STAGES = PACKAGE_ROOT / "stages"


def files_without_components(stage: str) -> list[Path]:
    """Return the files of a stage without those of models, kernels, sources and analyses."""
    return [*source_closure([_STAGES / f"{stage}.py"]), *_templates(stage)]


def stage_fingerprint(stage: str, name: str, experiments: Mapping[str, ExperimentBase]) -> str:
    """Return the fingerprint of what a stage of an experiment runs; see `stage_files` for the arguments.

    Of a model, `compile` and `sample` run what draws depend on, and `sample` what a stopping rule monitors.
    """
    files = stage_files(stage, name, experiments)
    if stage not in ("compile", "sample"):
        return fingerprint(files)
    is_monitored = stage == "sample" and experiments[name].sampling.stop is not None
    return fingerprint(files, digest_without(files, LATER_MEMBERS - ({"summaries"} if is_monitored else set())))


def stage_files(stage: str, name: str, experiments: Mapping[str, ExperimentBase]) -> list[Path]:
    """Return the files that a stage of an experiment runs.

    Args:
        stage: name of the stage.
        name: name of the experiment.
        experiments: all experiments, including those that an analysis names.
    """
    experiment = experiments[name]
    if stage in LATER:
        return _analysis_files(LATER[stage], stage, [name, *experiment.named_experiments(LATER[stage])], experiments)
    entries = [_STAGES / f"{stage}.py", *_components(stage, experiment)]
    shown: list[Path] = []
    if stage == "sample" and experiment.sampling.stop is not None:
        entries.append(_STAGES / "stop_rule.py")
    if stage == "report":
        asked = [declared(each) for each in experiment.analyses()]
        entries += [each.section_file for each in asked]
        shown = [template for each in asked for template in each.templates]
    return [*source_closure(entries), *shown, *_templates(stage)]


def _analysis_files(key: str, stage: str, names: list[str], experiments: Mapping[str, ExperimentBase]) -> list[Path]:
    """Return the files that an analysis runs, with the models of all experiments that it reads.

    The section of a folder belongs to the page, so changing it does not run the analysis again.
    """
    analysis = declared(key)
    apart = {analysis.section_file} - {analysis.path}
    models = [path for name in names for path in _components(stage, experiments[name])]
    return source_closure([_STAGES / "analyse.py", analysis.path, *models], without=apart)


def _components(stage: str, experiment: ExperimentBase) -> list[Path]:
    whole = experiment.model_dump(mode="json")
    return [file for kind in COMPONENTS[stage] for file in component_files(kind, whole[KEYS[kind]])]


def _templates(stage: str) -> list[Path]:
    """Return the templates of the pages, and the words of the gates."""
    folders = {"report": ("figures/templates", "report/templates", "diagnostics"), "diagnose": ("diagnostics",)}
    shown = (".html", ".css", ".mplstyle", ".yaml")
    found = (path for folder in folders.get(stage, ()) for path in (PACKAGE_ROOT / folder).glob("*.*"))
    return sorted(path for path in found if path.suffix in shown)
