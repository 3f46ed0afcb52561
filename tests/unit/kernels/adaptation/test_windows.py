"""When the metric is estimated anew."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from bayesmesh.kernels.adaptation.windows import is_window_end, window_ends


def closing(num_warmup: int) -> list[int]:
    """Iteration counts at which a window closes."""
    counts = jnp.arange(num_warmup + 10, dtype=jnp.int32)
    return counts[jax.vmap(lambda count: is_window_end(count, num_warmup))(counts)].tolist()


@pytest.mark.parametrize("num_warmup", [0, 1, 2, 5, 20, 100, 999])
def test_windows_grow_and_leave_the_end_to_the_step_size(num_warmup: int) -> None:
    ends = closing(num_warmup)
    assert all(2 <= end <= num_warmup for end in ends)
    if num_warmup >= 20:
        assert len(ends) >= 5
        assert ends[-1] <= 0.85 * num_warmup
        widths = [b - a for a, b in zip((0, *ends), ends, strict=False)]
        assert widths == sorted(widths)


@pytest.mark.parametrize("num_warmup", [0, 1, 6, 30])
def test_a_window_closes_at_each_end_and_nowhere_else(num_warmup: int) -> None:
    """A window of one iteration would say nothing about a spread, so an end below 2 closes none."""
    ends = window_ends(num_warmup).tolist()
    assert ends == sorted(ends)
    assert closing(num_warmup) == sorted({end for end in ends if end >= 2})


def test_the_length_of_warmup_may_be_an_argument() -> None:
    ends = jax.jit(window_ends)
    for num_warmup in (0, 7, 50, 999):
        assert ends(jnp.asarray(num_warmup, jnp.int32)).tolist() == window_ends(num_warmup).tolist()
