"""Recall, NDCG and entropies against values worked out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bayesmesh.analyses._jackknife import jackknife_se
from bayesmesh.analyses.recommendation.scores import (
    entropy,
    left_out_entropies,
    mean_and_se,
    ndcg,
    random_ndcg,
    random_recall,
    ratio_se,
    recall,
)

HITS = np.array([[True, False, True], [False, False, False], [True, True, True]])


def test_recall_is_a_share_of_all_held_out_films():
    np.testing.assert_allclose(recall(HITS, np.array([2, 1, 6])), [1.0, 0.0, 0.5])


def test_ndcg_discounts_by_rank_and_truncates_the_ideal():
    ideal_of_two = 1 + 1 / math.log2(3)
    np.testing.assert_allclose(ndcg(HITS, np.array([2, 1, 6])), [(1 + 0.5) / ideal_of_two, 0.0, 1.0])


@pytest.mark.parametrize(("num_candidates", "num_held_out", "cutoff"), [(5, 2, 3), (4, 3, 2), (3, 1, 6)])
def test_random_scores_are_means_over_all_orders(num_candidates, num_held_out, cutoff):
    films = [film < num_held_out for film in range(num_candidates)]
    orders = np.array(list(itertools.permutations(films)))
    listed = np.zeros((len(orders), cutoff), bool)
    listed[:, : min(cutoff, num_candidates)] = orders[:, :cutoff]
    held_out = np.full(len(orders), num_held_out)
    candidates, hidden = np.array([num_candidates]), np.array([num_held_out])
    assert random_recall(candidates, cutoff)[0] == pytest.approx(recall(listed, held_out).mean())
    assert random_ndcg(candidates, hidden, cutoff)[0] == pytest.approx(ndcg(listed, held_out).mean())


def test_standard_error_is_over_users():
    mean, se = mean_and_se(np.array([0.0, 1.0, 1.0, 0.0]))
    assert (mean, se) == (0.5, pytest.approx(math.sqrt(1 / 3) / 2))
    assert math.isnan(mean_and_se(np.array([0.3]))[1])


def jackknife(best, num_chains):
    return float(jackknife_se(left_out_entropies(best, num_chains)))


def test_jackknife_agrees_with_the_spread_of_repeated_runs():
    generator = np.random.default_rng(0)
    probability = np.array([0.7, 0.2, 0.1])
    runs = generator.choice(3, p=probability, size=(400, 800))
    spread = np.std([entropy(np.bincount(run, minlength=3)) for run in runs])
    assert np.mean([jackknife(run, num_chains=1) for run in runs[:100]]) == pytest.approx(spread, rel=0.2)


def test_the_error_of_a_difference_leaves_out_what_two_users_share():
    """A user whose best film is another's, renamed, has exactly the same entropy: the difference has no error."""
    generator = np.random.default_rng(0)
    best = generator.choice(3, p=(0.7, 0.2, 0.1), size=800)
    one, other = (left_out_entropies(films, num_chains=4) for films in (best, 2 - best))
    assert jackknife_se(one) > 0.01
    assert jackknife_se(other - one) < 1e-12


def test_jackknife_sees_chains_that_disagree():
    # Four chains in two modes; by runs of draws every batch would look alike.
    best = np.tile([0, 0, 1, 2], 50)
    assert jackknife(best, num_chains=4) > 0.2
    assert jackknife(best, num_chains=2) < 1e-12
    assert math.isnan(jackknife(np.array([1]), num_chains=1))
    assert jackknife(np.full(8, -1), num_chains=4) == 0, "all films are watched"


def test_the_error_of_a_ratio_is_that_of_repeated_samples_of_users():
    generator = np.random.default_rng(1)
    popularity = generator.gamma(2.0, size=(500, 60))
    ours = 2 * popularity + generator.normal(0, 0.5, popularity.shape)
    spread = np.std(ours.mean(axis=1) / popularity.mean(axis=1))
    assert np.mean([ratio_se(*pair) for pair in zip(ours, popularity, strict=True)]) == pytest.approx(spread, rel=0.1)
    assert math.isnan(ratio_se(np.ones(1), np.ones(1)))
    assert math.isnan(ratio_se(np.ones(3), np.zeros(3)))
