"""The sections about what the posterior is for: averaging and recommendation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from bayesmesh.figures import formats
from bayesmesh.figures.canvas import Panel
from bayesmesh.report.averaging_panels import MEASURES, draw_reliability, draw_score
from bayesmesh.report.draw_summaries import read_predictions
from bayesmesh.report.recommendations import (
    RankingScore,
    UserList,
    genre_colours,
    ratio_to_popularity,
    read_rankings,
    read_users,
)
from bayesmesh.report.tables import AveragingScore, read_averaging
from bayesmesh.store.layout import ExperimentLayout

__all__ = ["Averaging", "Recommendation", "best_ratio", "build_averaging", "build_recommendation"]

MAX_FILMS = 10


@dataclasses.dataclass(frozen=True)
class Averaging:
    """Scores at the largest number of draws, and panels by number of draws."""

    main: Panel | None
    calibration: Panel | None
    others: tuple[Panel, ...]
    sentence: str
    rows: tuple[tuple[str, str, str, str], ...]
    last: AveragingScore
    scores: tuple[AveragingScore, ...]


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """Lists of users and held-out scores."""

    users: tuple[UserList, ...]
    others: tuple[UserList, ...]
    colours: dict[str, int]
    full_width: float
    genre_width: float
    sentence: str
    rankings: tuple[tuple[RankingScore, float], ...]
    max_films: int


def build_averaging(layout: ExperimentLayout) -> Averaging | None:
    """Build the section; None where nothing was averaged.

    Raises:
        StoreError: the scores are damaged.
    """
    if not layout.averaging_scores.exists():
        return None
    scores = read_averaging(layout.averaging_scores)
    if not scores:
        return None
    last = scores[-1]
    predictions = read_predictions(layout.averaging_predictions)
    rows = [
        (
            MEASURES[name][0],
            formats.fixed(last.single[name], 5),
            formats.fixed(last.average[name], 5),
            _signed(last, name),
        )
        for name in MEASURES
        if math.isfinite(last.average[name])
    ]
    others = (draw_score(scores, name) for name in MEASURES if name != "accuracy")
    return Averaging(
        main=draw_score(scores, "accuracy", is_main=True),
        calibration=draw_reliability(*predictions) if predictions else None,
        others=tuple(panel for panel in others if panel),
        sentence=_gain_sentence(last),
        rows=tuple(rows),
        last=last,
        scores=tuple(scores),
    )


def _signed(score: AveragingScore, name: str) -> str:
    gain = score.average[name] - score.single[name]
    return ("+" if gain > 0 else "") + formats.fixed(gain, 5)


def _gain_sentence(last: AveragingScore) -> str:
    single, average = last.single["accuracy"], last.average["accuracy"]
    if not (math.isfinite(single) and math.isfinite(average)):
        return ""
    gain = (average - single) * 100
    many = formats.count(last.num_draws)
    comparison = f"{formats.fixed(abs(gain), 2)} percentage points {'above' if gain >= 0 else 'below'}"
    return (
        f"The average of {many} draws is right in {average * 100:.2f}% of the test rows, {comparison} "
        f"the mean of its single draws ({single * 100:.2f}%)."
    )


def build_recommendation(layout: ExperimentLayout) -> Recommendation | None:
    """Build the section; None where nothing was ranked.

    Raises:
        StoreError: a file is damaged.
    """
    users = read_users(layout) if layout.recommendations_top.exists() else []
    scores = read_rankings(layout.recommendations_scores) if layout.recommendations_scores.exists() else []
    if not users and not scores:
        return None
    extremes = [user for user in users if user.activity in ("most", "least")]
    shown = extremes or users[:2]
    return Recommendation(
        users=tuple(shown),
        others=tuple(user for user in users if user not in shown),
        colours=genre_colours(users),
        full_width=_largest(value for user in users for film in user.films for value in (film.p_best, film.p_top)),
        genre_width=_largest(p_best for user in users for _, p_best in user.genres),
        sentence=_entropy_sentence(extremes),
        rankings=tuple((score, ratio_to_popularity(scores, score)) for score in scores),
        max_films=MAX_FILMS,
    )


def _largest(values: object) -> float:
    finite = [v for v in values if math.isfinite(v)]  # type: ignore[attr-defined]
    return max(finite, default=0.0) or 1.0


def _entropy_sentence(users: Sequence[UserList]) -> str:
    """Compare how much the posterior leaves open about the best film of the most and of the least active user."""
    by_activity = {user.activity: user for user in users}
    most, least = by_activity.get("most"), by_activity.get("least")
    if most is None or least is None or not (math.isfinite(most.entropy) and math.isfinite(least.entropy)):
        return ""
    difference = least.entropy - most.entropy
    wider, other = ("least", "most") if difference > 0 else ("most", "least")
    return (
        f"{_openness('most', most)} {_openness('least', least)} The posterior leaves more open about the {wider} active "
        f"user than about the {other} active one, by {formats.fixed(abs(difference), 2)} nats."
    )


def _openness(activity: str, user: UserList) -> str:
    watched = "" if math.isnan(user.num_watched) else f", who watched {formats.count(user.num_watched)} films,"
    error = "" if math.isnan(user.entropy_sd) else f" ± {formats.fixed(user.entropy_sd, 2)}"
    return (
        f"For the {activity} active user{watched} the best unwatched film has an entropy of "
        f"{formats.fixed(user.entropy, 2)}{error} nats, as of {formats.real(math.exp(min(user.entropy, 700.0)), 2)} "
        f"equally likely films{_saturation(user)}."
    )


def _saturation(user: UserList) -> str:
    """Say so where the number of draws, and not the posterior, bounds the entropy."""
    if not user.num_draws > 1 or user.entropy < 0.8 * math.log(user.num_draws):
        return ""
    bound = formats.fixed(math.log(user.num_draws), 2)
    return f" (too low: {formats.count(user.num_draws)} draws cannot show more than {bound})"


def best_ratio(recommendation: Recommendation) -> float:
    """Return the largest NDCG ratio to popularity at the smallest cutoff; NaN without one."""
    found = [
        (score.cutoff, -ratio) for score, ratio in recommendation.rankings if not score.is_popularity and ratio > 0
    ]
    return -min(found)[1] if found else math.nan
