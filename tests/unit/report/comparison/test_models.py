"""Models are compared by paired rows, only if these are the same, and what is said follows from the intervals."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.analyses.evidence.table import Estimate
from bayesmesh.analyses.figures.documents import read_csv
from bayesmesh.errors import ConfigError
from bayesmesh.report.comparison.models import Feature, compare_models, model_probabilities
from bayesmesh.report.comparison.page import write_comparison
from bayesmesh.report.comparison.text import sentences
from bayesmesh.store.layout import ComparisonLayout
from bayesmesh.store.scores import RowScores

NUM_ROWS = 400


def scores(elpd: np.ndarray, k: float = 0.1, held_out: np.ndarray | None = None) -> dict[str, RowScores]:
    per_row = {
        "pareto_k": np.full(len(elpd), k), "effective_parameters": np.full(len(elpd), 0.01),
        "mcse": np.full(len(elpd), 1e-3),
    }  # fmt: skip
    found = {"left_out": RowScores(elpd, "same", False, 4000, **per_row)}
    return found if held_out is None else {**found, "held_out": RowScores(held_out, "held", False, 4000)}


@pytest.fixture
def base() -> np.ndarray:
    return np.random.default_rng(1).normal(-1.4, 1, NUM_ROWS)


def test_differences_are_paired_and_chosen_by_intervals(base: np.ndarray, tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    wobble = generator.normal(0, 0.3, NUM_ROWS)
    wobble -= wobble.mean()
    held = generator.normal(-1.4, 1, 50)
    found = compare_models({
        "clearly-worse": scores(base - 0.2 + wobble, held_out=held - 0.2),
        "best": scores(base, held_out=held),
        "near": scores(base - 0.01 + wobble, 0.9, held_out=held - 0.1),
    })  # fmt: skip
    best, near, worse = found.members
    assert [best.name, near.name, worse.name] == ["best", "near", "clearly-worse"]
    assert worse.difference.difference == pytest.approx(-0.2 * NUM_ROWS)
    # The rows are shared: the error is that of the wobble, and of Monte Carlo noise, not of the rows.
    noise = np.sqrt(2 * NUM_ROWS) * 1e-3
    assert worse.difference.error == pytest.approx(np.hypot(np.sqrt(NUM_ROWS) * wobble.std(ddof=1), noise))
    assert found.num_errors == pytest.approx(2.2414, abs=1e-4), "two differences are looked at together"
    said = " ".join(sentences(found))
    assert "best has the highest sum of log scores on 400 rows, but near does not differ" in said
    assert "Worse by more than that: clearly-worse." in said
    assert "Pareto k is too high for some rows of near" in said
    assert "on the 50 held-out rows" in said
    layout = ComparisonLayout(tmp_path, "three")
    write_comparison(layout, "Three", found)
    page, rows = layout.page.read_text(), read_csv(layout.table, ["model", "stacking_weight"])
    assert "<svg" in page
    assert "best has the highest sum" in page
    assert "Effective parameters" in page
    assert [row.text("model") for row in rows] == ["best", "near", "clearly-worse", "(stacking)", "(pseudo-BMA+)"]
    assert sum(row.number("stacking_weight") for row in rows[:3]) == pytest.approx(1)
    assert sum(member.num_draws for member in found.members) == 1000


def test_the_average_is_scored_as_a_mixture(base: np.ndarray) -> None:
    """Each of two models is right about other rows: their average beats both, on held-out rows too."""
    is_first = np.arange(NUM_ROWS) % 2 == 0
    one, two = base - np.where(is_first, 0, 2), base - np.where(is_first, 2, 0)
    found = compare_models({"one": scores(one, held_out=one), "two": scores(two, held_out=two)})
    stacked = found.averages[0]
    np.testing.assert_allclose([each.stacking for each in found.members], 0.5, atol=1e-6)
    expected = np.log(0.5 * np.exp(one) + 0.5 * np.exp(two)).sum()
    assert stacked.elpd.difference == pytest.approx(expected)
    assert stacked.held_out.difference == pytest.approx(expected)
    assert "stacking weights is better than" in sentences(found)[-1]
    assert found.residual < 1e-6


def test_probabilities_follow_from_the_evidence_and_its_error(base: np.ndarray, tmp_path: Path) -> None:
    found = compare_models({"a": scores(base), "b": scores(base - 0.1)})
    sure = {"a": Estimate("bridge", -50.0, 0.01), "b": Estimate("bridge", -50 - np.log(9), 0.01)}
    probabilities = model_probabilities(sure)
    assert probabilities["a"].probability == pytest.approx(0.9)
    assert 0.89 < probabilities["a"].low < 0.9 < probabilities["a"].high < 0.91
    said = " ".join(sentences(found._replace(probabilities=probabilities)))
    assert "a has posterior probability 90.0%" in said
    assert "width of the priors" in said
    unsure = model_probabilities({name: each._replace(error=2.0) for name, each in sure.items()})
    assert "which does not single it out" in " ".join(sentences(found._replace(probabilities=unsure)))
    assert "probab" not in " ".join(sentences(found)).replace("probably", "")
    layout = ComparisonLayout(tmp_path, "two")
    write_comparison(layout, "Two", found._replace(probabilities=probabilities))
    rows = read_csv(layout.table, ["model", "log_evidence", "probability"])
    assert [row.number("probability") for row in rows[:2]] == pytest.approx([0.9, 0.1])
    assert [row.text("probability") for row in rows[2:]] == ["", ""]
    assert "Log evidence" in layout.page.read_text()


def test_weights_may_vary_with_a_feature(base: np.ndarray, tmp_path: Path) -> None:
    """Each of two models is right in other groups; without groups, nothing is gained and the weights stay together."""
    generator = np.random.default_rng(4)
    group = generator.integers(0, 4, NUM_ROWS)
    noise = generator.normal(0, 0.3, NUM_ROWS)
    one, two = base - np.where(group < 2, 0, 1) + noise, base - np.where(group < 2, 1, 0)
    both = {"one": scores(one), "two": scores(two)}
    found = compare_models(both, feature=Feature("site", group, ("a", "b", "c", "d")))
    names = [member.name for member in found.members]
    weights = {label: dict(zip(names, each, strict=True)) for label, _, each in found.by_cell.rows}
    assert min(weights["a"]["one"], weights["b"]["one"]) > 0.8
    assert max(weights["c"]["one"], weights["d"]["one"]) < 0.2
    assert sum(count for _, count, _ in found.by_cell.rows) == NUM_ROWS
    assert found.by_cell.gain.difference > 30
    assert "weights vary with site is better than one with the same weights" in " ".join(sentences(found))
    layout = ComparisonLayout(tmp_path, "groups")
    write_comparison(layout, "Groups", found)
    assert "Weights by site" in layout.page.read_text()
    other = compare_models(both, feature=Feature("x", generator.standard_normal(NUM_ROWS)))
    assert len(other.by_cell.rows) == 5
    assert other.by_cell.gain.difference < 3
    assert "is better than one with" not in " ".join(sentences(other))
    # Rows choose no spread for themselves, so weights that vary for no reason can score worse.
    noise = [
        Feature("x", np.random.default_rng(seed).integers(0, 4, NUM_ROWS), ("a", "b", "c", "d")) for seed in range(8)
    ]
    assert min(compare_models(both, feature=each).by_cell.gain.difference for each in noise) < 0
    for values, said in ((group[:-1], r"has shape \(399,\)"), (np.full(NUM_ROWS, np.nan), "not finite")):
        with pytest.raises(ConfigError, match=said):
            compare_models(both, feature=Feature("x", values))


def test_other_rows_other_outcomes_and_impossible_rows_are_refused(base: np.ndarray) -> None:
    first = scores(base)
    for change, message in (
        ({"elpd": base[:-1]}, "'a' has 400 training rows, and 'b' 399"),
        ({"digest": "other"}, "'a' and 'b' have different outcomes in their training rows"),
        ({"is_discrete": True}, "'a' scores log densities of a real outcome, and 'b' log probabilities"),
        (
            {"elpd": np.where(np.arange(NUM_ROWS) == 7, -np.inf, base)},
            "experiment 'b': the log score of row 8, counted from 1, is -inf",
        ),
    ):
        other = {"left_out": dataclasses.replace(first["left_out"], **change)}
        with pytest.raises(ConfigError, match=message):
            compare_models({"a": first, "b": other})
    with pytest.raises(ConfigError, match="1 model with scores"):
        compare_models({"a": first})


def test_rows_left_out_in_another_way_are_refused_and_groups_make_the_error(base: np.ndarray) -> None:
    """Of fifty groups in which all differences are the same, there are fifty differences, and not 400."""
    cluster = np.arange(NUM_ROWS) // 8
    gap = np.repeat(np.random.default_rng(3).normal(0, 1, NUM_ROWS // 8), 8)

    def of_groups(elpd: np.ndarray, failed: tuple[str, ...] = ()) -> dict[str, RowScores]:
        by_group = {"scheme": "5 folds of whole groups", "cluster": cluster, "mcse": None, "failed": failed}
        return {"left_out": dataclasses.replace(scores(elpd)["left_out"], **by_group)}

    found = compare_models({"one": of_groups(base), "two": of_groups(base + gap, ("two-fold-1-of-5",))})
    expected = np.sqrt(NUM_ROWS // 8) * 8 * gap[::8].std(ddof=1)
    assert found.members[1].difference.error == pytest.approx(expected)
    said = " ".join(sentences(found))
    assert "on 400 rows (5 folds of whole groups)" in said
    assert "The chains of two-fold-1-of-5 have failed their gates: scores of the rows that they leave out" in said
    assert "chains of two have" not in said
    assert "too small with fewer than 100 groups" in said
    # Weights by group know nothing of a group that is left out whole, and much of one that has other rows.
    feature = Feature("group", cluster, tuple(map(str, range(NUM_ROWS // 8))))
    by_group = compare_models({"one": of_groups(base), "two": of_groups(base + gap)}, feature=feature)
    by_row = compare_models({"one": scores(base), "two": scores(base + gap)}, feature=feature)
    assert by_group.by_cell.gain.difference < 20
    assert by_row.by_cell.gain.difference > 60
    # The bootstrap draws groups: eight equal differences count as one, eight times as large.
    of_one = compare_models({"one": scores(np.zeros(NUM_ROWS // 8)), "two": scores(8 * gap[::8])})
    weights, alone = ({each.name: each.pseudo_bma for each in made.members} for made in (found, of_one))
    assert weights == pytest.approx(alone)
    with pytest.raises(
        ConfigError, match="rows of experiment 'one' are left out as single rows, and those of 'two' as 5 folds"
    ):
        compare_models({"one": scores(base), "two": of_groups(base)})
