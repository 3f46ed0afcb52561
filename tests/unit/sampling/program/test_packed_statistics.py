"""Statistics keep their names, values and dtypes through one array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Statistic
from bayesmesh.sampling.program.packed_statistics import label, pack, unpack


class Info(NamedTuple):
    lp: Any
    log_likelihood: Any
    n_steps: Any
    accepted: Any
    not_recorded: Any


class Kernel:
    statistics: ClassVar[Mapping[str, Statistic]] = {name: Statistic("1", "Some.") for name in Info._fields[:-1]}


INFO = Info(
    jnp.asarray([0.1, -1e300, jnp.nan]), jnp.asarray([1.0, 2.0, -jnp.inf]), jnp.asarray(2**31 - 1, jnp.int32),
    jnp.asarray([True, False, True]), jnp.zeros(7),
)  # fmt: skip


def test_values_and_dtypes_are_kept() -> None:
    rows = jnp.stack([pack(Kernel(), INFO, 3)] * 2)
    packed = label(Kernel(), INFO, rows)
    found = unpack(np.asarray(packed.values), packed.like)
    assert {k: (v.shape, v.dtype.name) for k, v in found.items()} == {
        "lp": ((2, 3), "float64"), "log_likelihood": ((2, 3), "float64"), "n_steps": ((2, 3), "int32"), "accepted": ((2, 3), "bool"),
    }  # fmt: skip
    for name, values in found.items():
        np.testing.assert_array_equal(values, np.broadcast_to(getattr(INFO, name), (2, 3)), err_msg=name)
