"""Find and read the scores by row of experiments, whichever analysis wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bayesmesh.config.config_refit_settings import Folds
from bayesmesh.config.config_registry import read_options
from bayesmesh.config.declarations import list_analyses
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.figures.evidence_table import EVIDENCE, best_estimate, read_evidence
from bayesmesh.report.comparison.comparison_evidence import ModelProbability, model_probabilities
from bayesmesh.report.comparison.model_comparison import Feature, ModelComparison, compare_models
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.score_store import POINTWISE, RowScores, read_pointwise, read_scheme
from bayesmesh.store.sealed import read_sealed
from bayesmesh.store.seals import check_output, find_seal, stale_inputs


def compare_experiments(layouts: Iterable[ExperimentLayout], feature: Feature | None = None) -> ModelComparison:
    """Compare experiments by their stored scores, after comparing these with the records of the jobs that wrote them.

    Raises:
        ConfigError: an experiment has no scores by row, or they are of other rows than those of another.
        StoreError: scores are damaged or altered.
    """
    chosen = list(layouts)
    failed = [
        each.experiment for each in chosen if each.verdict.exists() and read_verdict(each.verdict).verdict == "fail"
    ]
    paths = choose_scores(chosen)
    for each in chosen:
        _check_sealed(each, paths[each.experiment])
    _check_kept_rows({each.experiment: _kept_rows(each, paths[each.experiment]) for each in chosen})
    scores = {name: read_pointwise(path) for name, path in paths.items()}
    found = compare_models(scores, failed, feature)
    outdated = tuple(each.experiment for each in chosen if not _is_current(each, paths[each.experiment]))
    return found._replace(probabilities=_probabilities(chosen, scores), outdated=outdated)


def _probabilities(
    layouts: Sequence[ExperimentLayout], scores: Mapping[str, Mapping[str, RowScores]]
) -> dict[str, ModelProbability]:
    """Return the probabilities of models that all have a usable evidence of the same outcomes; otherwise none."""
    found = {}
    for each in layouts:
        path = find_output(each, EVIDENCE)
        if path is None:
            return {}
        _check_sealed(each, path)
        best = best_estimate(read_evidence(path))
        if best is None or best.digest != scores[each.experiment]["left_out"].digest:
            return {}
        found[each.experiment] = best
    return model_probabilities(found)


def evidence_of(layout: ExperimentLayout) -> Path | None:
    """Return the table of evidences of an experiment, whichever analysis wrote it; None without any."""
    return find_output(layout, EVIDENCE)


def _check_sealed(layout: ExperimentLayout, path: Path) -> None:
    if (layout.results / "seals").is_dir():
        check_output(layout.results, path)


def _check_kept_rows(kept: Mapping[str, tuple[str, str]]) -> None:
    """Refuse experiments whose sources left out different rows of one file: their outcomes may be the same in the same order.

    Args:
        kept: experiment -> what `_kept_rows` returns.

    Raises:
        ConfigError: names two of them.
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
    """Return which files the source of some scores read, and which of their rows it kept; empty where it kept all, or no record says."""
    try:
        inputs = find_seal(layout.results, path).inputs
    except StoreError:
        return "", ""
    sharded = (layout.results / name for name in inputs if name.startswith("data/") and name.endswith("/sharded.json"))
    # Beside the folders of splits; an experiment has one dataset.
    fetched = next((each.parents[1] / "fetched.json" for each in sharded), None)
    if fetched is None or not fetched.exists():
        return "", ""
    manifest = read_sealed(fetched, "run the fetch stage again")
    return " ".join(manifest.get("files", {}).values()), manifest["origin"].get("kept_rows", "")


def _is_current(layout: ExperimentLayout, path: Path) -> bool:
    """Return whether an output was made from what is there now, as far as records say."""
    try:
        return not any(stale_inputs(layout.results, find_seal(layout.results, path)))
    except StoreError:
        return True


def choose_scores(layouts: Sequence[ExperimentLayout]) -> dict[str, Path]:
    """Return experiment -> its scores by row, by the first analysis that has left out rows of all of them in one way.

    Where there is none, those of the first analysis of each. Scores that were made from another posterior than the present
    one, such as those of an analysis that is no longer asked for, count only where there are no others.

    Raises:
        ConfigError: an experiment has no scores; the remedy names the analyses that write them.
        StoreError: they are damaged.
    """
    found: dict[str, dict[str, Path]] = {}
    for each in layouts:
        paths = _outputs(each, POINTWISE) or [pointwise_of(each)]
        current = [path for path in paths if _is_current(each, path)] or paths
        found[each.experiment] = {path.parent.name: path for path in current}
    for folder in next(iter(found.values()), {}):
        alike = {name: each[folder] for name, each in found.items() if folder in each}
        if len(alike) == len(found) and len({read_scheme(path) for path in alike.values()}) == 1:
            return alike
    return {name: next(iter(each.values())) for name, each in found.items()}


def find_pointwise(layout: ExperimentLayout) -> Path | None:
    """Return the scores by row of an experiment, whichever analysis wrote them; None without any."""
    return find_output(layout, POINTWISE)


def find_output(layout: ExperimentLayout, output: str) -> Path | None:
    """Return an output of an experiment by its name, whichever analysis wrote it; None without any."""
    return next(iter(_outputs(layout, output)), None)


def _outputs(layout: ExperimentLayout, output: str) -> list[Path]:
    shipped = [layout.folder / each.folder / output for each in list_analyses() if output in each.outputs]
    own = sorted(layout.folder.glob(f"*/{output}"))
    return [path for path in dict.fromkeys((*shipped, *own)) if path.exists()]


def pointwise_of(layout: ExperimentLayout) -> Path:
    """Return the scores by row of an experiment.

    Raises:
        ConfigError: it has none.
    """
    path = find_pointwise(layout)
    if path is None:
        name, scoring = layout.experiment, [each for each in list_analyses() if POINTWISE in each.outputs]
        # One that samples nothing again comes first.
        first = min(scoring, key=lambda each: issubclass(read_options(each.path), Folds))
        added = f"add `{first.name}: {{}}` to the experiment and run it again: its draws stay"
        raise ConfigError(f"experiment '{name}' has no scores by row in {layout.folder}", added)
    return path
