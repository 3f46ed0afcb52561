"""When the scale is taken anew."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from bayesmesh.kernels.adaptation.windows import is_window_end, window_ends


@pytest.mark.parametrize("num_warmup", [0, 1, 2, 5, 20, 100, 999])
def test_windows_grow_and_leave_the_end_to_the_step_size(num_warmup: int) -> None:
    ends = window_ends(num_warmup)
    assert list(ends) == sorted(set(ends))
    assert all(2 <= end <= num_warmup for end in ends)
    if num_warmup >= 20:
        assert len(ends) >= 5
        assert ends[-1] <= 0.85 * num_warmup
        widths = [b - a for a, b in zip((0, *ends), ends, strict=False)]
        assert widths == sorted(widths)


@pytest.mark.parametrize("num_warmup", [0, 30])
def test_a_window_closes_at_each_end_and_nowhere_else(num_warmup: int) -> None:
    closing = [count for count in range(40) if is_window_end(jnp.asarray(count, jnp.int32), num_warmup)]
    assert closing == list(window_ends(num_warmup))
