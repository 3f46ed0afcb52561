"""Hash everything that a model can see of a dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

__all__ = ["fingerprint_data"]


def fingerprint_data(arrays: Mapping[str, np.ndarray], described: Mapping[str, object]) -> str:
    """Return a sha256, in hexadecimal, over decoded values, independent of chunks, compression and storage.

    Args:
        arrays: name -> array; names, dtypes, shapes and values count, the order of the mapping does not.
        described: everything except arrays (kind, constants, columns), as plain values; the order within lists counts.

    >>> one = fingerprint_data({"a": np.zeros(2), "b": np.ones(1)}, {})
    >>> one == fingerprint_data({"b": np.ones(1), "a": np.zeros(2)}, {})
    True
    >>> one == fingerprint_data({"a": np.zeros((2, 1)), "b": np.ones(1)}, {})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.asarray(arrays[name])
        # Little-endian everywhere, so that the same data has the same fingerprint on every machine.
        values = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(values.shape)
        header = json.dumps([name, values.dtype.str, list(values.shape)])
        digest.update(len(header).to_bytes(8, "little") + header.encode())
        digest.update(values.data if values.size else b"")
    digest.update(json.dumps(described, sort_keys=True, ensure_ascii=False, allow_nan=False).encode())
    return digest.hexdigest()
