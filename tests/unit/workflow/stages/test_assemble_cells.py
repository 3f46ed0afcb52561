"""Summaries at probe rows have the names of the cells that the model gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset, Variable
from bayesmesh.data.sharding import shard
from bayesmesh.data.views import prepared
from bayesmesh.models.rating_factorization import Options, RatingFactorization
from bayesmesh.sampling.checks.model import check_described
from bayesmesh.sampling.density.summaries import spread_evenly
from bayesmesh.store.layout import DataLayout
from bayesmesh.workflow.stages.assemble import name_cells

OPTIONS = Options(user="reader", film="book", rating="stars", width=2)


def test_expected_ratings_are_those_of_the_named_reader_and_book(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    pairs = random.permutation(30)[:24]
    rows = {
        "reader": (pairs // 5).astype(np.int32),
        "book": (pairs % 5).astype(np.int32),
        "stars": random.normal(3, 1, 24),
    }
    variables = {
        "reader": Variable("category", tuple(f"reader {i}" for i in range(6))),
        "book": Variable("category", tuple("abcde")), "stars": Variable("number"),
    }  # fmt: skip
    layout = DataLayout(tmp_path, "some", "all")
    shard(Dataset(rows, variables=variables), DataSettings(held_out_fraction=0.0), layout)
    shards = prepared(layout.shards, lambda spec, read: RatingFactorization.prepare(OPTIONS, spec, read))
    spec = shards.spec("float64")
    model = RatingFactorization(OPTIONS, spec)
    ((name, labels),) = name_cells(model, spec, shards, 7)["expected"]
    assert name == "reader and book"
    numbers = spread_evenly(24, 7)
    of_model = shards.read_chosen(numbers)
    assert len(labels) == 7
    for label, film, stars in zip(labels, of_model["film"], of_model["rating"], strict=True):
        reader, book = label.split(" · ")
        assert book == "abcde"[film]
        (row,) = np.flatnonzero((rows["reader"] == int(reader[-1])) & (rows["book"] == film))
        assert rows["stars"][row] == stars, "the rating of that row"
    assert [each.heading for each in model.shown()][-1] == "Expected stars of some pairs of reader and book"
    assert check_described(model).meanings["mean_film_bias"] == "mean bias over the levels of book"
