"""New users are drawn from their exact posterior given the films."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.analyses.fold_in import watches
from bayesmesh.analyses.fold_in.watches import Films, carried, films_of, fold_in

NUM_COPIES = 4000


def make_films(num_films: int, width: int, offset: float, seed: int = 1) -> Films:
    generator = np.random.default_rng(seed)
    return films_of(generator.normal(size=(num_films, width)), generator.normal(offset, 1, num_films))


def exact_grid(films: Films, watched: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Points of a fine grid over the two latents of a user, and their posterior probabilities."""
    axis = np.linspace(-5 * scale, 5 * scale, 301)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    logits = points @ films.design.T.astype(float) + films.offset
    density = (watched * logits - np.logaddexp(0, logits)).sum(axis=1) - (points**2).sum(axis=1) / (2 * scale**2)
    weights = np.exp(density - density.max())
    return points, weights / weights.sum()


@pytest.mark.parametrize(
    ("num_films", "offset", "scale", "num_watched"), [(8, -1.0, 1.5, 0), (8, 0.0, 3.0, 8), (60, -2.0, 1.0, 9)]
)
def test_draws_have_the_exact_posterior(num_films: int, offset: float, scale: float, num_watched: int) -> None:
    """Few films and a wide prior: the posterior is skewed, so the normal at its mode is not good enough."""
    films, generator = make_films(num_films, 1, offset), np.random.default_rng(5)
    watched = np.zeros(num_films, bool)
    watched[generator.permutation(num_films)[:num_watched]] = True
    points, weights = exact_grid(films, watched, scale)
    found = fold_in(films, np.tile(watched, (NUM_COPIES, 1)), scale, generator)
    assert found.acceptance.mean() > 0.5
    for axis in range(2):
        mean = weights @ points[:, axis]
        sd = np.sqrt(weights @ (points[:, axis] - mean) ** 2)
        # Users are independent, so that errors are known: four of them.
        assert abs(found.latents[:, axis].mean() - mean) < 4 * sd / np.sqrt(NUM_COPIES)
        order = np.argsort(points[:, axis], kind="stable")
        below = np.cumsum(weights[order])
        for share in (0.05, 0.5, 0.95):
            limit = points[order[np.searchsorted(below, share)], axis]
            error = np.sqrt(share * (1 - share) / NUM_COPIES)
            assert abs((found.latents[:, axis] <= limit).mean() - share) < 4 * error + 0.01  # the grid's own


def test_the_normal_at_the_mode_would_fail_here() -> None:
    """The first case above with one proposal, which is never rejected: the test can see the difference."""
    films, watched = make_films(8, 1, 0.0), np.ones((NUM_COPIES, 8), bool)
    points, weights = exact_grid(films, watched[0], 3.0)
    found = fold_in(films, watched, 3.0, np.random.default_rng(5), num_proposals=1)
    mean = weights @ points
    sd = np.sqrt(weights @ (points - mean) ** 2)
    assert (np.abs(found.latents.mean(axis=0) - mean) > 4 * sd / np.sqrt(NUM_COPIES)).any()


def test_the_mode_has_no_gradient_and_depends_neither_on_start_nor_on_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    films, generator = make_films(300, 5, -3.0), np.random.default_rng(2)
    watched = generator.random((40, 300)) < generator.uniform(0.01, 0.5, (40, 1))
    found = fold_in(films, watched, 1.0, generator).mode
    design = films.design.astype(float)
    probability = 1 / (1 + np.exp(-(found @ design.T + films.offset)))
    gradient = (watched - probability) @ design - found
    curvature = np.einsum("uf,fi,fj->uij", probability * (1 - probability), design, design) + np.eye(6)
    steps = np.sqrt(np.einsum("ui,uij,uj->u", gradient, np.linalg.inv(curvature), gradient))
    assert steps.max() < 0.01  # in posterior standard deviations
    far = fold_in(films, watched, 1.0, generator, start=np.full((40, 6), 4.0)).mode
    np.testing.assert_allclose(far, found, atol=0.01)
    monkeypatch.setattr(watches, "TILE_CELLS", 300 * 7)
    np.testing.assert_allclose(fold_in(films, watched, 1.0, generator).mode, found, atol=0.01)


def test_latents_are_carried_over_when_embeddings_turn() -> None:
    old, generator = make_films(80, 4, -1.0), np.random.default_rng(4)
    turn, _ = np.linalg.qr(generator.normal(size=(4, 4)))
    new = films_of(old.design[:, :4] @ turn, old.offset + 0.7)
    latents = generator.normal(size=(6, 5))
    moved = carried(old, new, latents)
    before, after = (d.design @ z.T + d.offset[:, None] for d, z in ((old, latents), (new, moved)))
    # A ridge of one in eighty films.
    np.testing.assert_allclose(after, before, atol=0.25)
    assert np.abs(new.design @ latents.T + new.offset[:, None] - before).max() > 2
