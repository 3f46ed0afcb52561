"""What the section says of users and rankings."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bayesmesh.analyses.recommendation.section import (
    compare_rankings,
)

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
