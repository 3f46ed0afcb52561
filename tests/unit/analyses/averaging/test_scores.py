"""Scores against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bayesmesh.analyses.averaging.scores import (
    LOG_FLOOR,
    accuracy,
    brier_score,
    expected_calibration_error,
    log_score,
    score_probabilities,
)

PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4], [1.0, 0.0, 0.0]])
LABELS = np.array([0, 2, 2, 0])


def test_accuracy_counts_labels_that_are_most_probable():
    assert accuracy(PROBABILITIES, LABELS) == 0.75


def test_log_score_is_the_mean_log_probability_of_the_label():
    expected = (math.log(0.7) + math.log(0.4) + math.log(0.4) + 0.0) / 4
    assert log_score(PROBABILITIES, LABELS) == pytest.approx(expected, rel=1e-14)


def test_log_score_of_an_impossible_label_is_finite_and_documented():
    assert log_score(PROBABILITIES, np.array([0, 2, 2, 1])) == pytest.approx(
        (math.log(0.7) + 2 * math.log(0.4) + math.log(LOG_FLOOR)) / 4
    )
    assert math.log(LOG_FLOOR) == pytest.approx(-87.3365, abs=1e-3)


def test_brier_score_sums_over_classes():
    rows = [0.3**2 + 0.2**2 + 0.1**2, 0.1**2 + 0.5**2 + 0.6**2, 0.3**2 + 0.3**2 + 0.6**2, 0.0]
    assert brier_score(PROBABILITIES, LABELS) == pytest.approx(sum(rows) / 4, rel=1e-14)
    assert brier_score(np.array([[0.0, 1.0]]), np.array([0])) == 2.0


def test_calibration_error_weighs_bins_by_their_rows():
    # Two bins: (0, 0.5] holds rows 1 (wrong, 0.5) and 2 (right, 0.4); (0.5, 1] rows 0 (0.7) and 3 (1.0), both right.
    expected = 0.5 * abs(0.5 - 0.45) + 0.5 * abs(1.0 - 0.85)
    assert expected_calibration_error(PROBABILITIES, LABELS, 2) == pytest.approx(expected, rel=1e-14)


def test_one_bin_compares_accuracy_with_mean_confidence():
    assert expected_calibration_error(PROBABILITIES, LABELS, 1) == pytest.approx(0.75 - 0.65, rel=1e-12)


def test_bins_are_closed_above():
    # A confidence of exactly one half is in the lower of two bins, apart from 0.6: errors there cannot cancel.
    probabilities = np.array([[0.5, 0.5], [0.6, 0.4]])
    assert expected_calibration_error(probabilities, np.array([0, 1]), 2) == pytest.approx((0.5 + 0.6) / 2)


def test_scores_are_proper_on_average():
    truth = np.array([0.6, 0.3, 0.1])
    labels = np.repeat(np.arange(3), [6, 3, 1])
    honest = score_probabilities(np.tile(truth, (10, 1)), labels, 5)
    for other in ([0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.6, 0.2, 0.2]):
        told = score_probabilities(np.tile(other, (10, 1)), labels, 5)
        assert told.log_score < honest.log_score
        assert told.brier > honest.brier
    assert honest.ece == pytest.approx(0.0, abs=1e-12)
