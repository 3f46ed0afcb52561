"""Prepared data sets, each made once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.data.base import Dataset
from bayesmesh.data.fetching import fetch
from bayesmesh.data.sources import mnist, movielens
from bayesmesh.store.layout import DataLayout

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture
def layout(tmp_path: Path) -> DataLayout:
    return DataLayout(tmp_path, "some", "split")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mirror, and every connection goes to a port where nobody listens."""
    monkeypatch.delenv("BAYESMESH_MIRROR", raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture(scope="session")
def mnist_layout(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> DataLayout:
    """MNIST, fetched from the mirror."""
    layout = DataLayout(tmp_path_factory.mktemp("mnist"), "mnist", "split")
    fetch(mnist.Source(mnist.Options()), {"name": "mnist"}, layout)
    return layout


@pytest.fixture(scope="session")
def mnist_dataset(mnist_layout: DataLayout) -> Dataset:
    return mnist.Source(mnist.Options()).read(mnist_layout.records)


@pytest.fixture(scope="session")
def movielens_layout(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> DataLayout:
    """MovieLens-1M, fetched from the mirror."""
    layout = DataLayout(tmp_path_factory.mktemp("movielens"), "movielens", "split")
    fetch(movielens.Source(movielens.Options()), {"name": "movielens"}, layout)
    return layout


@pytest.fixture(scope="session")
def movielens_dataset(movielens_layout: DataLayout) -> Dataset:
    return movielens.Source(movielens.Options()).read(movielens_layout.records)
