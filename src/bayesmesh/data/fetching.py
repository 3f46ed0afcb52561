"""Brings the files of a source into place, whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from bayesmesh.data.base import Source
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.sealed import write_sealed

__all__ = ["fetch"]


def fetch(source: Source, source_config: Mapping[str, Any], layout: DataLayout) -> dict[str, Any]:
    """Run ``source.fetch`` into a temporary folder, move it to ``layout.records``, then write ``layout.fetched``.

    Whatever an earlier or interrupted fetch left is removed first, so a manifest always describes what lies beside it.

    Args:
        source: the source, made with its options.
        source_config: its name and options as plain values, for the manifest.
        layout: paths of the dataset.

    Returns:
        The manifest: ``source``, ``options`` and ``origin``.

    Raises:
        DataError: from the source.
    """
    partial = layout.records.with_name(layout.records.name + ".partial")
    layout.fetched.unlink(missing_ok=True)
    for folder in (layout.records, partial):
        if folder.exists():
            shutil.rmtree(folder)
    partial.mkdir(parents=True)
    origin = source.fetch(partial)
    os.replace(partial, layout.records)
    manifest = {
        "source": dict(source_config),
        "options": source.options.model_dump(mode="json"),
        "origin": dict(origin),
    }
    write_sealed(layout.fetched, manifest)
    return manifest
