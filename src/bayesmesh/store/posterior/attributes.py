"""Attributes of the posterior and its groups: those of ArviZ's schema, and no nested ones, which NetCDF cannot hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version

import zarr

from bayesmesh.files import JSON
from bayesmesh.store.arrays import dimension_names
from bayesmesh.store.layout import CHAIN, DRAW


def flatten(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return attributes that NetCDF can hold: lists and mappings as JSON text, truth values as 0 or 1.

    >>> flatten({"mesh": {"x": 2}, "groups": [], "unadjusted": True, "kernel": "nuts"})
    {'mesh': '{"x": 2}', 'groups': '[]', 'unadjusted': 1, 'kernel': 'nuts'}
    """
    flat = dict(attributes)
    for name, value in attributes.items():
        if isinstance(value, dict | list):
            flat[name] = json.dumps(value)
        elif isinstance(value, bool):
            flat[name] = int(value)
    return flat


def read_attribute(value: object) -> object:
    """Return an attribute as it was before `flatten`; stores of earlier versions have nested attributes.

    >>> read_attribute('{"x": 2}'), read_attribute("nuts"), read_attribute([1])
    ({'x': 2}, 'nuts', [1])
    """
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def describe_groups(root: zarr.Group, created_at: str) -> None:
    """Write the attributes of ArviZ's schema to the root and to every group.

    Args:
        root: of the posterior, open for writing.
        created_at: time of the start of the chains, in ISO format.
    """
    library = {"library": "bayesmesh", "library_version": version("bayesmesh")}
    common = {f"{role}_{key}": value for role in ("creation", "inference") for key, value in library.items()}
    common |= {"created_at": created_at, "creation_library_language": "Python"}
    root.attrs.update(common)
    for _, group in root.groups():
        has_draws = any(dimension_names(array)[:2] == (CHAIN, DRAW) for _, array in group.arrays())
        group.attrs.update({**common, "sample_dims": [CHAIN, DRAW] if has_draws else []})
