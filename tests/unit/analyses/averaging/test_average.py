"""The streamed average against one computed directly, bounds on memory, and refusals."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pandas as pd
import pytest

from bayesmesh.analyses.averaging.average import (
    BlockSums,
    Predictor,
    _score_average,
    _score_singles,
    _table_row,
    average,
    draw_counts,
)
from bayesmesh.analyses.averaging.scores import COLUMNS, Scores, entropy, row_groups, score_probabilities
from bayesmesh.analyses.options import AveragingOptions
from bayesmesh.models.softmax_regression import Options, SoftmaxRegression

SETTINGS = AveragingOptions(calibration_bins=5, points_per_decade=4)


def read_scores(files):
    return pd.read_csv(files["scores.csv"])


def test_draw_counts_are_even_in_their_logarithm():
    assert draw_counts(1000, 4) == [1, 2, 3, 6, 10, 18, 32, 56, 100, 178, 316, 562, 1000]
    assert draw_counts(1, 4) == [1]
    assert draw_counts(7, 1) == [1, 7]
    assert draw_counts(12, 100) == list(range(1, 13))


def test_average_equals_the_direct_computation(model, spec, write_posterior, latents, test_rows, direct, files):
    result = average(model, spec, write_posterior(latents), test_rows, SETTINGS, files)
    table = read_scores(files)
    assert list(table.columns) == COLUMNS
    assert table.num_draws.tolist() == [1, 2, 3, 6, 10, 14]
    labels = test_rows["label"]
    singles = np.array([score_probabilities(p, labels, 5) for p in direct])
    sets = [row_groups(len(labels)) != group for group in range(20)]
    for row in table.to_dict("records"):
        count = int(row["num_draws"])
        averaged = score_probabilities(direct[:count].mean(axis=0), labels, 5)
        for place, name in enumerate(Scores._fields):
            assert row[f"average_{name}"] == pytest.approx(averaged[place], rel=1e-4, abs=1e-6), (count, name)
            assert row[f"single_{name}"] == pytest.approx(singles[:count, place].mean(), rel=1e-4, abs=1e-6)
        without = [score_probabilities(p[kept], labels[kept], 5) for kept in sets for p in direct[:count]]
        of_average = [score_probabilities(direct[:count, kept].mean(axis=0), labels[kept], 5) for kept in sets]
        left_out = np.array(of_average) - np.array(without).reshape(len(sets), count, 4).mean(axis=1)
        for place, name in enumerate(Scores._fields):
            expected = np.sqrt((len(sets) - 1) * left_out[:, place].var())
            assert row[f"gain_{name}_se"] == pytest.approx(expected, rel=1e-3, abs=1e-6), (count, name)
            expected = np.sqrt((len(sets) - 1) * np.array(of_average)[:, place].var())
            assert row[f"average_{name}_se"] == pytest.approx(expected, rel=1e-3, abs=1e-6), (count, name)
        if count > 1:
            assert row["single_accuracy_sd"] == pytest.approx(singles[:count, 0].std(ddof=1))
    assert np.isnan(table.single_accuracy_sd[0])
    assert result["gain_accuracy"] == table.average_accuracy.iloc[-1] - table.single_accuracy.iloc[-1]
    # The fixture must be able to tell an average from a single draw.
    assert abs(table.average_log_score.iloc[-1] - table.single_log_score.iloc[-1]) > 0.1


def test_the_error_of_the_gain_is_that_of_rows_drawn_anew():
    """For a mean over rows the jackknife of groups estimates the error of the mean difference, row by row."""
    rng = np.random.default_rng(3)
    labels = np.tile(np.arange(3), 400)
    draws = rng.dirichlet(np.ones(3), (2, len(labels))) * 0.7 + 0.3 * np.eye(3)[labels]
    groups = row_groups(len(labels))
    sums = _block_sums(draws, labels, groups, 5)
    row = _table_row(_score_singles(sums, groups), _score_average(draws.mean(axis=0), labels, groups, 5))
    squares = np.sum((draws - np.eye(3)[labels]) ** 2, axis=2)
    paired = np.sum((draws.mean(axis=0) - np.eye(3)[labels]) ** 2, axis=1) - squares.mean(axis=0)
    assert row["average_brier"] - row["single_brier"] == pytest.approx(paired.mean())
    assert row["gain_brier_se"] == pytest.approx(paired.std() / len(labels) ** 0.5, rel=0.35)
    assert row["gain_brier_se"] < squares.std() / len(labels) ** 0.5 / 2, "far below the error of either score"


def _block_sums(draws, labels, groups, num_bins):
    """Return what the device sums, computed row by row."""
    of_label = np.take_along_axis(draws, labels[None, :, None], axis=2)[..., 0]
    squares = np.sum((draws - np.eye(3)[labels]) ** 2, axis=2)
    correct, confidence = draws.argmax(axis=2) == labels, draws.max(axis=2)
    bins = np.ceil(confidence * num_bins).astype(int) - 1
    scores = np.zeros((len(draws), 3, groups.max() + 1))
    calibration = np.zeros((len(draws), num_bins, groups.max() + 1))
    for draw in range(len(draws)):
        for place, values in enumerate((correct[draw], np.log(of_label[draw]), squares[draw])):
            np.add.at(scores[draw, place], groups, values)
        np.add.at(calibration[draw], (bins[draw], groups), correct[draw] - confidence[draw])
    return BlockSums(draws.sum(axis=0), scores, calibration, entropy(draws).sum(axis=0))


@pytest.mark.parametrize(("work_bytes", "block_bytes"), [(1, 2**26), (7 * 14 * 3 * 16, 2**26), (900, 500)])
def test_bounded_blocks_and_tiles_give_the_same(
    model, spec, write_posterior, latents, test_rows, files, work_bytes, block_bytes, monkeypatch
):
    posterior = write_posterior(latents)
    whole = average(model, spec, posterior, test_rows, SETTINGS, files)
    reference = read_scores(files)
    module = sys.modules[average.__module__]
    monkeypatch.setattr(module, "WORK_BYTES", work_bytes)
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    parts = average(model, spec, posterior, test_rows, SETTINGS, files)
    assert parts == pytest.approx(whole, rel=1e-6)
    pd.testing.assert_frame_equal(read_scores(files), reference, rtol=1e-6, atol=1e-8)


def test_tiles_keep_the_bound(model, latents, test_rows, direct, monkeypatch):
    monkeypatch.setattr(sys.modules[average.__module__], "WORK_BYTES", 14 * 3 * 16 * 4)
    predictor = Predictor(model, test_rows, test_rows["label"], num_classes=3, block_draws=14, num_bins=5)
    assert predictor.tile_rows == 4
    flat = {name: np.swapaxes(v, 0, 1).reshape(14, *v.shape[2:]) for name, v in latents.items()}
    sums = predictor.sum_block(flat, 5)
    np.testing.assert_allclose(sums.probabilities, direct[:5].sum(axis=0), atol=5e-6)
    assert sums.scores.shape == (5, 3, 20)
    assert sums.calibration.shape == (5, 5, 20)


def test_one_trace_for_all_blocks(spec, write_posterior, latents, test_rows, files):
    traces = []

    class Counting(SoftmaxRegression):
        def predict(self, latents, inputs):
            traces.append(inputs["features"].shape)
            return super().predict(latents, inputs)

    average(Counting(Options(), spec), spec, write_posterior(latents), test_rows, SETTINGS, files)
    # One abstract evaluation by the check, one for each device.
    assert len(traces) <= 1 + len(jax.local_devices())
