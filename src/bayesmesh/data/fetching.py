"""Fetch the files of a source atomically."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import TypedDict

from bayesmesh.data.base import Source
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.sealed import write_sealed

__all__ = ["fetch"]


class FetchManifest(TypedDict):
    """The manifest of a fetch: name and options of the source, and the origin of its files."""

    source: dict[str, object]
    options: dict[str, object]
    origin: dict[str, object]


def fetch(source: Source, source_config: Mapping[str, object], layout: DataLayout) -> FetchManifest:
    """Run ``source.fetch`` into a temporary folder, move it to ``layout.records``, then write ``layout.fetched``.

    Files of an earlier or interrupted fetch are removed first, so a manifest always describes the files beside it.

    Args:
        source: the source, made with its options.
        source_config: its name and options as plain values, for the manifest.
        layout: paths of the dataset.

    Returns:
        The manifest.

    Raises:
        DataError: raised by the source.
    """
    partial = layout.records.with_name(layout.records.name + ".partial")
    layout.fetched.unlink(missing_ok=True)
    for folder in (layout.records, partial):
        if folder.exists():
            shutil.rmtree(folder)
    partial.mkdir(parents=True)
    origin = source.fetch(partial)
    os.replace(partial, layout.records)
    manifest: FetchManifest = {
        "source": dict(source_config),
        "options": source.options.model_dump(mode="json"),
        "origin": dict(origin),
    }
    write_sealed(layout.fetched, manifest)
    return manifest
