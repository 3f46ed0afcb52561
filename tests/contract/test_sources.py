"""The contract of a data source, for every source of the registry that needs no files, at its default options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.declarations import read_offers
from bayesmesh.config.registry import list_components, load_component, options_class
from bayesmesh.data.base import Dataset, Source
from bayesmesh.data.sharding import check_counts
from bayesmesh.data.shards import fingerprint_data


def make(name: str) -> Source:
    return load_component("source", name)(options_class("source", name)())


EMBEDDED = [name for name in list_components("source") if load_component("source", name).fetch is Source.fetch]


@pytest.fixture(scope="module", params=EMBEDDED)
def name(request: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def dataset(name: str) -> Dataset:
    return make(name).read(Path("nowhere"))


def arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    parts = {"rows": dataset.rows, "test_rows": dataset.test_rows, "truth": dataset.truth}
    return {f"{part}/{field}": values for part, fields in parts.items() for field, values in fields.items()}


def test_rows_are_finite_and_counted_as_declared(dataset: Dataset) -> None:
    counts = check_counts(dataset)
    assert counts["rows"] > 0
    assert dataset.declared_counts.get("rows") == counts["rows"]
    assert all(np.isfinite(values).all() for values in arrays(dataset).values())


def test_the_same_options_give_the_same_data(name: str, dataset: Dataset) -> None:
    again = make(name).read(Path("nowhere"))
    assert fingerprint_data(arrays(again), {}) == fingerprint_data(arrays(dataset), {})


def test_the_source_offers_what_it_declares(name: str, dataset: Dataset) -> None:
    declared = read_offers("source", name)
    found = {"averaging": bool(dataset.test_rows), "recommendation": dataset.kind == "interactions"}
    assert declared is None or {key for key, does in found.items() if does} == set(declared) & set(found)


def test_constants_are_plain_numbers(dataset: Dataset) -> None:
    assert all(isinstance(value, (int, float)) for value in dataset.constants.values())


def test_the_source_says_what_it_is_called(name: str) -> None:
    source = type(make(name))
    assert source.pretty_name
    assert source.__doc__
