"""What the section says of users and rankings."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from bayesmesh.analyses.recommendation.recommendation_score_section import (
    compare_rankings,
    describe_new_users,
    score_tables,
)
from bayesmesh.analyses.recommendation.section import (
    best_ratio,
    build_section,
    compare_users,
    describe,
    genre_colours,
    read_rankings,
    read_users,
)  # fmt: skip
from bayesmesh.errors import StoreError

TOP_COLUMNS = [
    "user", "user_id", "activity", "rank", "film_id", "title", "genres", "p_best", "p_top", "mean_probability",
    "sd_probability",
]  # fmt: skip
GENRE_COLUMNS = ["user", "activity", "genre", "p_best"]
USER_COLUMNS = [
    "user", "user_id", "activity", "num_watched", "entropy", "entropy_sd", "entropy_minus_first",
    "entropy_minus_first_sd", "entropy_top", "num_films_ever_best", "num_draws",
]  # fmt: skip
SCORE_COLUMNS = [
    "ranking", "cutoff", "recall", "recall_se", "ndcg", "ndcg_se", "ndcg_ratio_se", "num_users", "average_precision",
    "average_precision_se", "novelty", "coverage",
]  # fmt: skip
REST = (0.1, 0.002, 9.5, 0.4)
"""Average precision with its error, novelty and coverage of any ranking."""
TOP = [
    (7, 8, "chosen", 1, 1, "Heat", "Crime", 0.5, 0.9, 0.8, 0.1),
    (4, 5, "least", 2, 3, "Brazil", "Sci-Fi|Drama", 0.2, 0.4, 0.5, 0.1),
    (4, 5, "least", 1, 2, "Alien, again", "Sci-Fi", 0.3, 0.6, 0.7, 0.1),
    (1, 2, "most", 1, 2, "Alien, again", "Sci-Fi", 0.7, 0.9, 0.9, 0.1),
]
GENRES = [(4, "least", "Drama", 0.1), (4, "least", "Sci-Fi", 0.4), (1, "most", "Sci-Fi", 0.8)]
SCORES = [
    ("single_draw", 10, 0.17, 0.002, 0.25, 0.0026, 0.05, 60), ("random", 10, 0.0027, None, 0.0041, None, 0.01, 60),
    ("posterior_average", 10, 0.19, 0.0021, 0.28, 0.0028, 0.06, 60), ("popularity", 10, 0.1, 0.0016, 0.14, 0.0022, 0, 60),
]  # fmt: skip


def users(num_draws: int = 1000, least: float = 3.52, error: float = 0.07) -> list[tuple[object, ...]]:
    return [
        (1, 2, "most", 2314, 1.3, 0.05, 0.0, 0.0, 2.0, 4, num_draws),
        (4, 5, "least", 20, least, 0.05, least - 1.3, error, 5.1, 9, num_draws),
    ]


@pytest.fixture
def written(files: dict[str, Path]) -> dict[str, Path]:
    """Tables of three users, one of whom has no numbers of its own."""
    write(files, users())
    return files


def write(files: dict[str, Path], numbers: list[tuple[object, ...]]) -> None:
    files["top.csv"].parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(TOP, columns=TOP_COLUMNS).to_csv(files["top.csv"], index=False)
    pd.DataFrame(GENRES, columns=GENRE_COLUMNS).to_csv(files["genres.csv"], index=False)
    pd.DataFrame(numbers, columns=USER_COLUMNS).to_csv(files["users.csv"], index=False)
    pd.DataFrame([(*row, *REST) for row in SCORES], columns=SCORE_COLUMNS).to_csv(files["scores.csv"], index=False)


def test_lists_are_ordered_by_activity_and_rank(written: dict[str, Path]) -> None:
    found = read_users(written)
    assert [user["activity"] for user in found] == ["most", "least", "chosen"]
    assert [film["title"] for film in found[1]["films"]] == ["Alien, again", "Brazil"]
    assert found[1]["genres"] == [("Sci-Fi", 0.4), ("Drama", 0.1)]
    assert (found[1]["user_id"], found[1]["num_watched"]) == ("5", 20)
    assert math.isnan(found[2]["entropy"])
    assert found[2]["heading"] == "User 8"
    assert genre_colours(found) == {"Sci-Fi": 0, "Crime": 1, "Drama": 2}


def test_names_the_user_with_more_uncertainty(written: dict[str, Path]) -> None:
    said = compare_users(read_users(written))
    assert "less certain about the least active user than about the most active one, by 2.22 ± 0.07 nats" in said
    assert "too low" not in said


@pytest.mark.parametrize(("error", "said"), [(0.02, "+0.03 ± 0.02"), (None, "+0.03, error not known")])
def test_a_difference_within_its_error_is_not_called_one(files: dict[str, Path], error: float, said: str) -> None:
    write(files, users(least=1.33, error=error))
    sentence = compare_users(read_users(files))
    assert f"The two entropies show no clear difference: {said} nats." in sentence
    assert "less certain" not in sentence


def test_entropies_that_draws_limit_are_not_compared(files: dict[str, Path]) -> None:
    write(files, users(num_draws=4))
    said = compare_users(read_users(files))
    assert said.count("too low: 4 draws") == 2
    assert "less certain" not in said
    assert said.endswith("There are too few draws to compare the two users.")


def test_an_entropy_that_draws_cannot_show_is_called_too_low(files: dict[str, Path]) -> None:
    write(files, users(num_draws=40))
    assert "too low: 40 draws limit it to 3.69" in compare_users(read_users(files))


def test_rankings_are_compared_with_popularity_at_the_same_cutoff(written: dict[str, Path]) -> None:
    rankings = read_rankings(written["scores.csv"])
    assert list(rankings["ranking"]) == ["posterior_average", "single_draw", "popularity", "random"]
    assert best_ratio(rankings) == pytest.approx((1.0, 0.06))
    assert describe(written) == "NDCG × 2.00 ± 0.06 of popularity"
    assert best_ratio(rankings[~rankings["is_popularity"]].assign(ratio=math.nan)) is None


@pytest.mark.parametrize(
    ("error", "said"), [(0.6, "on held-out films: no clear difference"), (0.06, "on held-out films")]
)
def test_a_ratio_within_its_error_is_not_called_better(files: dict[str, Path], error: float, said: str) -> None:
    write(files, users())
    table = pd.read_csv(files["scores.csv"]).assign(ndcg_ratio_se=error)
    table.to_csv(files["scores.csv"], index=False)
    section = build_section(files)
    assert section is not None
    assert [number.detail for number in section.numbers] == [said]


def test_the_section_shows_the_extremes_and_folds_the_others(written: dict[str, Path]) -> None:
    section = build_section(written)
    assert section is not None
    assert [number.value for number in section.numbers] == ["× 2.00 ± 0.06"]
    shown, _, folded = section.body.partition("<details>")
    assert "Most active user" in shown
    assert "User 8" in folded
    assert "1 more user" in folded


def test_all_bars_share_one_scale(written: dict[str, Path]) -> None:
    """Those of films and of genres, of shown and of folded users: the largest probability, 0.9, fills a bar."""
    section = build_section(written)
    assert section is not None
    widths = {float(width) for width in re.findall(r"width:([\d.]+)%", section.body)}
    values = {value for row in TOP for value in row[7:9]} | {row[3] for row in GENRES}
    assert widths == {round(100 * float(value) / 0.9, 2) for value in values}
    assert "share one scale: a full bar is 90.0%" in section.body


def test_without_files_there_is_nothing_and_a_damaged_one_is_named(files: dict[str, Path]) -> None:
    assert build_section(files) is None
    assert describe(files) == ""
    write(files, users())
    files["scores.csv"].write_text("ranking,cutoff\nposterior_average,ten\n")
    with pytest.raises(StoreError, match=r"scores\.csv: no column recall"):
        build_section(files)


def test_a_number_of_films_that_is_not_known_is_left_out(files: dict[str, Path]) -> None:
    write(files, [(*row[:3], None, *row[4:]) for row in users()])
    said = compare_users(read_users(files))
    assert "For the most active user the best unwatched film has an entropy of 1.30" in said
    assert "watched nan" not in said.lower()


def write_scores(files: dict[str, Path], ease: tuple[float, float], covered: float) -> None:
    differences = [
        ("single_draw", "ndcg", 0.03, 0.02, 0.04), ("ease", "ndcg", sum(ease) / 2, *ease), ("random", "ndcg", 0.3, 0.2, 0.4),
        ("popularity", "recall", -0.5, -0.6, -0.4),
    ]  # fmt: skip
    pd.DataFrame(differences, columns=["ranking", "score", "difference", "low", "high"]).to_csv(
        files["differences.csv"]
    )
    about = {
        "num_users": 1000, "num_draws": 64, "acceptance": 0.6, "probability": 0.9, "counts_covered": covered,
        "counts_covered_se": 0.01, "logits_covered": None, "logits_covered_se": None,
    }  # fmt: skip
    pd.DataFrame([about]).to_csv(files["new_users.csv"], index=False)


@pytest.mark.parametrize(
    ("ease", "words"),
    [
        ((0.01, 0.03), "better than single draws (0.020 to 0.040) and EASE (0.010 to 0.030). In brackets"),
        ((-0.03, -0.01), "better than single draws (0.020 to 0.040); worse than EASE (−0.030 to −0.010)"),
        ((-0.01, 0.01), "; not clearly better or worse than EASE (−0.010 to 0.010)"),
    ],
)
def test_rankings_are_compared_by_intervals_whoever_wins(
    written: dict[str, Path], ease: tuple[float, float], words: str
) -> None:
    write_scores(written, ease, 0.9)
    said = compare_rankings(written["differences.csv"])
    assert words in said
    assert "popularity" not in said


@pytest.mark.parametrize(
    ("covered", "words"), [(0.95, "too wide"), (0.86, "too narrow"), (0.91, "as they should, within the error")]
)
def test_intervals_of_new_users_are_judged_by_their_error(written: dict[str, Path], covered: float, words: str) -> None:
    write_scores(written, (0, 1), covered)
    said = describe_new_users(written["new_users.csv"])
    assert said.startswith("1,000 users were withheld from the chains and folded in with 64 draws")
    assert words in said
    assert "true logits" not in said
    section = build_section(written)
    assert section is not None
    assert words in section.body


def test_a_baseline_does_not_stand_for_the_posterior(written: dict[str, Path]) -> None:
    """The key number is that of the posterior, also where EASE ranks better."""
    before = describe(written)
    scores = pd.read_csv(written["scores.csv"])
    best = scores.iloc[[2]].assign(ranking="ease", ndcg=0.9)
    pd.concat([scores, best]).to_csv(written["scores.csv"], index=False)
    assert describe(written) == before


def test_tables_by_activity_and_of_calibration(written: dict[str, Path]) -> None:
    activity = [("ease", 1, 2, 9, 30, 0.3, 0.01, 0.4, 0.02), ("ease", 2, 10, 40, 30, 0.3, 0.01, 0.5, 0.02)]
    columns = ["ranking", "group", "films_from", "films_to", "num_users", "recall", "recall_se", "ndcg", "ndcg_se"]
    pd.DataFrame(activity, columns=columns).to_csv(written["activity.csv"], index=False)
    bins = pd.DataFrame({
        "low": [0.1], "high": [0.2], "num_cells": [500], "predicted": [0.15], "watched": [0.17], "difference_se": [0.01]
    })  # fmt: skip
    bins.to_csv(written["calibration.csv"], index=False)
    (heading, first, _), (_, second, _) = score_tables(written)
    assert heading == "By activity"
    assert "10 to 40" in first
    assert "0.500 ± 0.020" in first
    assert "2.00 ± 1.00 points" in second
