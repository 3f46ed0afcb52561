"""Find and read the pointwise scores of experiments, whichever analysis wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bayesmesh.analyses.evidence.table import EVIDENCE, best_estimate, read_evidence
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.report.comparison.models import (
    Feature,
    ModelComparison,
    ModelProbability,
    compare_models,
    model_probabilities,
)
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.checked import read_checked
from bayesmesh.store.records.jobs import check_output, find_record, stale_inputs
from bayesmesh.store.scores import POINTWISE, RowScores, read_pointwise, read_scheme


def compare_experiments(layouts: Iterable[ExperimentLayout], feature: Feature | None = None) -> ModelComparison:
    """Compare experiments by their pointwise scores, after checking these against the records of their jobs.

    Args:
        layouts: files of the experiments.
        feature: feature with which stacking weights vary, or None.

    Raises:
        ConfigError: an experiment has no pointwise scores, or sources kept different rows; see also `compare_models`.
        StoreError: a verdict, scores or evidence are damaged or altered.
    """
    chosen = list(layouts)
    failed = [
        each.experiment for each in chosen if each.verdict.exists() and read_verdict(each.verdict).verdict == "fail"
    ]
    paths = choose_scores(chosen)
    for each in chosen:
        _check_output(each, paths[each.experiment])
    _check_kept_rows({each.experiment: _kept_rows(each, paths[each.experiment]) for each in chosen})
    scores = {name: read_pointwise(path) for name, path in paths.items()}
    found = compare_models(scores, failed, feature)
    outdated = tuple(each.experiment for each in chosen if not _is_current(each, paths[each.experiment]))
    return found._replace(probabilities=_probabilities(chosen, scores), outdated=outdated)


def _probabilities(
    layouts: Sequence[ExperimentLayout], scores: Mapping[str, Mapping[str, RowScores]]
) -> dict[str, ModelProbability]:
    """Return posterior model probabilities; none unless all models have a usable evidence for their outcomes."""
    found = {}
    for each in layouts:
        path = find_output(each, EVIDENCE)
        if path is None:
            return {}
        _check_output(each, path)
        best = best_estimate(read_evidence(path))
        if best is None or best.digest != scores[each.experiment]["left_out"].digest:
            return {}
        found[each.experiment] = best
    return model_probabilities(found)


def _check_output(layout: ExperimentLayout, path: Path) -> None:
    if (layout.results / "seals").is_dir():
        check_output(layout.results, path)


def _check_kept_rows(kept: Mapping[str, tuple[str, str]]) -> None:
    """Refuse experiments whose sources left out different rows of the same files.

    The digest of outcomes cannot detect this, because different rows may have the same outcomes in the same order.

    Args:
        kept: experiment -> result of `_kept_rows`.

    Raises:
        ConfigError: two experiments kept different rows; the message names them.
    """
    known: dict[str, tuple[str, str]] = {}
    for name, (files, rows) in kept.items():
        first, reference = known.setdefault(files, (name, rows)) if rows else (name, rows)
        if rows != reference:
            raise ConfigError(
                f"the data of experiments '{first}' and '{name}' leave out different rows of their files",
                "let both keep the rows that all models can use, for example\n    data:\n      rows: not missing(a) and not missing(b)",
            )


def _kept_rows(layout: ExperimentLayout, path: Path) -> tuple[str, str]:
    """Return digests of the files that an experiment's source read, and a digest of the rows that it kept.

    The second is empty if the source kept all rows. Both are empty without a record.
    """
    try:
        inputs = find_record(layout.results, path).inputs
    except StoreError:
        return "", ""
    sharded = (layout.results / name for name in inputs if name.startswith("data/") and name.endswith("/sharded.json"))
    # The file lies beside the folders of splits; an experiment has one dataset.
    fetched = next((each.parents[1] / "fetched.json" for each in sharded), None)
    if fetched is None or not fetched.exists():
        return "", ""
    manifest = read_checked(fetched, "run the fetch stage again")
    return " ".join(manifest.get("files", {}).values()), manifest["origin"].get("kept_rows", "")


def _is_current(layout: ExperimentLayout, path: Path) -> bool:
    """Return whether an output was made from the current inputs, according to its record; True if no record can be read."""
    try:
        return not any(stale_inputs(layout.results, find_record(layout.results, path)))
    except StoreError:
        return True


def choose_scores(layouts: Sequence[ExperimentLayout]) -> dict[str, Path]:
    """Return experiment -> path of its pointwise scores.

    The scores come from the first analysis that left out the rows of all experiments by the same scheme. If there is no
    such analysis, they come from the first analysis of each experiment. Scores made from inputs other than the current
    ones, such as those of an analysis that is no longer requested, count only if an experiment has no others.

    Raises:
        ConfigError: an experiment has no scores; the remedy names an analysis that writes them.
        StoreError: scores are damaged.
    """
    found: dict[str, dict[str, Path]] = {}
    for each in layouts:
        paths = _outputs(each, POINTWISE)
        if not paths:
            raise ConfigError(
                f"experiment '{each.experiment}' has no scores by row in {each.folder}",
                "add `loo: {}` to the experiment and run it again: its draws are kept",
            )
        current = [path for path in paths if _is_current(each, path)] or paths
        found[each.experiment] = {path.parent.name: path for path in current}
    for folder in next(iter(found.values()), {}):
        alike = {name: each[folder] for name, each in found.items() if folder in each}
        if len(alike) == len(found) and len({read_scheme(path) for path in alike.values()}) == 1:
            return alike
    return {name: next(iter(each.values())) for name, each in found.items()}


def find_output(layout: ExperimentLayout, output: str) -> Path | None:
    """Return the path of an experiment's output by its name, whichever analysis wrote it; None if absent."""
    return next(iter(_outputs(layout, output)), None)


def _outputs(layout: ExperimentLayout, output: str) -> list[Path]:
    return sorted(layout.folder.glob(f"*/{output}"))
