"""k_fold: score rows under posteriors that have not seen them, each sampled in a separate job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.formats import Comparison
from bayesmesh.analyses.figures.sections import KeyNumber, Section, html_table, render
from bayesmesh.analyses.k_fold.tables import Fold, read_folds, read_sums
from bayesmesh.analyses.options import KFoldOptions as Options
from bayesmesh.store.scores import POINTWISE, SINGLE_ROWS, RowScores, read_pointwise, say_impossible, sum_error


class KFold(Analysis):
    """Cross-validation by folds of rows, by groups of rows, or by predicting the future from the past."""

    pretty_name = "Cross-validation"
    outputs = ("k_fold.csv", "folds.csv", "pointwise.zarr")
    message = "Score the folds of {experiment}"
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require rows without latents of their own, or, if the model takes all rows as one, a likelihood of fewer."""
        from bayesmesh.analyses._draw_blocks import check_predictions, log_density_of
        from bayesmesh.analyses._likelihood import check_rows
        from bayesmesh.analyses.k_fold.joint import KEY, check_whole

        if bound.model.reads_whole(bound.model.options):
            check_whole(bound, self.options)
            return
        check_rows(KEY, bound.model, bound.data_spec)
        check_predictions(KEY, bound, latents, log_density_of)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Score the rows of each fold under the draws without them, join the scores, and return their sum as text."""
        from bayesmesh.analyses.k_fold.scores import score_folds

        return score_folds(subject, others, self.options, files)

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show the sum, the folds, and, if it has run, Pareto-smoothed importance sampling on the same rows."""
        sums, scheme = read_sums(files["k_fold.csv"])
        folds, every = read_folds(files["folds.csv"]), read_pointwise(files[POINTWISE])
        scores = every["left_out"]
        of_folds = "folds" if all(math.isnan(fold.elpd) for fold in folds) else "left-out rows"
        impossible = [
            say_impossible(each, of_folds if name == "left_out" else "held-out rows") for name, each in every.items()
        ]
        said = [*impossible, *sentences(sums, scheme, folds), _compare(scores, _by_single_rows(files))]
        table = html_table(_table(folds), "Folds")
        body = render(Path(__file__).with_name("section.html"), sentences=[*filter(None, said)], folds=table)
        numbers = [KeyNumber("Cross-validated log score", _text(sums, "elpd"), f"elpd, nats, {scheme}")]
        if any(impossible):
            numbers.append(
                KeyNumber("Rows without a finite score", "found", "their outcome has probability zero", "warn")
            )
        if sums["num_failed"]:
            number = f"of {formats.count(sums['num_folds'])} folds"
            numbers.append(KeyNumber("Folds with failed gates", formats.count(sums["num_failed"]), number, "warn"))
        return Section(body, numbers)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the sum of log scores."""
        sums, _ = read_sums(files["k_fold.csv"])
        failed = [fold.experiment for fold in read_folds(files["folds.csv"]) if fold.verdict == "fail"]
        doubt = f" (failed: {_named(failed)})" if failed else ""
        return f"cross-validated elpd {_text(sums, 'elpd')}{doubt}"


FEW_CLUSTERS = 20
"""With fewer groups or folds, the page says that their standard error is itself uncertain."""


def sentences(sums: Mapping[str, float], scheme: str, folds: Sequence[Fold]) -> list[str]:
    """Return what the sums say, in words."""
    num_rows, num_clusters = sums["num_rows"], sums["num_clusters"]
    mean, error = sums["elpd"] / num_rows, sums["elpd_se"] / num_rows
    is_joint = bool(folds) and all(math.isnan(fold.elpd) for fold in folds)
    over = (
        f" in {formats.count(num_clusters)} groups, over which its error is computed" if num_clusters < num_rows else ""
    )
    said = [
        f"The model takes all rows as one, so each fold is scored as one, under draws that were sampled without it. The "
        f"sum of log scores of {formats.count(num_clusters)} folds with {formats.count(num_rows)} rows is {_text(sums, 'elpd')} "
        f"({scheme}), with a standard error over folds. Its Monte Carlo error is {formats.real(sums['elpd_mcse'], 2)} nats."
        if is_joint
        else f"Under draws that were sampled without it, a row has a log score of {formats.real(mean)} ± "
        f"{formats.real(error, 2)} nats on average; the sum over {formats.count(num_rows)} rows{over} is "
        f"{_text(sums, 'elpd')} ({scheme}). Its Monte Carlo error is {formats.real(sums['elpd_mcse'], 2)} nats.",
    ]
    if sums["held_out_rows"]:
        held = sums["held_out_elpd"] / sums["held_out_rows"], sums["held_out_se"] / sums["held_out_rows"]
        said.append(
            f"Rows that are in no fold have a log score of {formats.real(held[0])} ± {formats.real(held[1], 2)} nats on average under all draws "
            f"({formats.count(sums['held_out_rows'])} rows; Monte Carlo error {formats.real(sums['held_out_mcse'] / sums['held_out_rows'], 2)})."
        )
    if num_clusters < FEW_CLUSTERS and num_clusters < num_rows:
        what = "folds" if is_joint else "groups"
        said.append(
            f"A standard error over {formats.count(num_clusters)} {what} is itself uncertain, and usually too small: "
            f"take it as an order of magnitude."
        )
    failed = [fold.experiment for fold in folds if fold.verdict == "fail"]
    if failed:
        said.append(
            f"The chains of {', '.join(failed)} have failed their gates: the scores of these rows may be wrong. The page of "
            f"a fold, written by `snakemake {failed[0]}`, says why."
        )
    return said


def _by_single_rows(files: Mapping[str, Path]) -> RowScores | None:
    """Return the scores of the same experiment by an analysis that leaves out single rows; None without any."""
    own = files[POINTWISE]
    for path in sorted(own.parent.parent.glob(f"*/{POINTWISE}")):
        if path != own and (found := read_pointwise(path)["left_out"]).scheme == SINGLE_ROWS:
            return found
    return None


def _compare(scores: RowScores, single: RowScores | None) -> str:
    """Say how leave-one-out by importance sampling scores the same rows; empty where it has not run."""
    if single is None or single.digest != scores.digest:
        return ""
    gap = scores.elpd - single.elpd
    if not np.isfinite(gap).all():
        return ""
    noise = math.hypot(scores.monte_carlo_error, single.monte_carlo_error)
    found = Comparison(float(gap.sum()), math.hypot(sum_error(gap, scores.cluster), noise))
    start = f"With single rows left out, importance sampling gives {formats.fixed(float(single.elpd.sum()), 1)}; cross-validation differs from it by {found.text(1)} nats."
    if scores.cluster is not None:
        return f"{start} This is what predictions lose without the other rows of the group."
    return f"{start} Folds leave fewer rows to learn from, so a slightly lower sum is expected."


def _table(folds: Sequence[Fold]) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {
        "refit": [fold.experiment for fold in folds],
        "rows left out": [float(fold.num_rows) for fold in folds],
        "rows sampled from": [float(fold.num_training_rows) for fold in folds],
        "log score": [fold.elpd for fold in folds],
        "log score of all together": [fold.joint_elpd for fold in folds],
        "its Monte Carlo error": [fold.joint_mcse for fold in folds],
        "verdict": [fold.verdict for fold in folds],
    }
    if all(math.isnan(fold.elpd) for fold in folds):
        del columns["log score"]
    return columns


def _named(failed: Sequence[str]) -> str:
    """Return the names of refits, or of many their number; an index has little space.

    >>> _named(["a-fold-1-of-9", "a-fold-2-of-9"]), _named(["a"] * 4)
    ('a-fold-1-of-9, a-fold-2-of-9', '4 folds')
    """
    return ", ".join(failed) if len(failed) <= 3 else f"{len(failed)} folds"


def _text(sums: Mapping[str, float], name: str) -> str:
    return f"{formats.fixed(sums[name], 1)} ± {formats.fixed(sums[name + '_se'], 1)}"
