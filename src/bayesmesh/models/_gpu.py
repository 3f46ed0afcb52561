"""The part of a model's contract that is about programs on NVIDIA GPUs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from jaxtyping import Array, Bool, Float

Arrays = Mapping[str, Array]
"""Latent -> one draw of it; or field -> one entry per row."""


class GpuPath(NamedTuple):
    """GPUs for which `Model.log_likelihood_and_gradient_on_gpu` is written: by default, NVIDIA's with bfloat16 tensor cores."""

    least_capability: float = 8.0
    """Lowest compute capability, such as 9.0 for an H100."""
    most_capability: float = math.inf
    num_devices: int | None = None
    """Largest number of devices of a program. The compiler does not partition custom kernels over devices."""


class OnGpu:
    """Methods that a model overrides to compute differently on GPUs; by default, nothing differs.

    Class attributes:
        gpu_path: the GPUs for which `log_likelihood_and_gradient_on_gpu` is written.
    """

    gpu_path: ClassVar[GpuPath] = GpuPath()

    @abstractmethod
    def log_likelihood_and_gradient(
        self, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Arrays]:
        """Return the log likelihood and its gradient by the plain path."""

    def log_likelihood_and_gradient_on_gpu(
        self, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Arrays]:
        """Return the same as `log_likelihood_and_gradient`, by a path for programs on the NVIDIA GPUs of `gpu_path`.

        A model may override it where their tensor cores are faster. A test compares it with the plain path: values must
        agree to float32 precision, and gradients to a relative error of at most 5e-4. Second derivatives are those of the
        plain path.
        """
        return self.log_likelihood_and_gradient(latents, rows, is_row)

    def rows_on_gpu(self, rows: Arrays) -> Arrays:
        """Return further fields of the rows, with distinct names, for `log_likelihood_and_gradient_on_gpu`.

        They are computed once per call of a program, not once per gradient.
        """
        del rows
        return {}
