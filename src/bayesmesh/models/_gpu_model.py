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
    """Which NVIDIA GPUs `Model.log_likelihood_and_gradient_on_gpu` is for: by default those whose tensor cores take bfloat16."""

    least_capability: float = 8.0
    """Compute capability, such as 9.0 of an H100."""
    most_capability: float = math.inf
    num_devices: int | None = None
    """Devices of a program at most. The compiler does not divide kernels of one's own among devices."""


class OnGpu:
    """What a model computes otherwise on GPUs; by default nothing.

    Class attributes:
        gpu_path: the GPUs that `log_likelihood_and_gradient_on_gpu` is for.
    """

    gpu_path: ClassVar[GpuPath] = GpuPath()

    @abstractmethod
    def log_likelihood_and_gradient(
        self, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Arrays]:
        """Return the plain path."""

    def log_likelihood_and_gradient_on_gpu(
        self, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Arrays]:
        """Return what `log_likelihood_and_gradient` does, by a path for programs on the NVIDIA GPUs of `gpu_path`.

        A model may override it where their tensor cores are faster. A test holds it to the plain path: values have the
        precision of float32, gradients an error of at most 5e-4 of their size. Second derivatives are those of the
        plain path.
        """
        return self.log_likelihood_and_gradient(latents, rows, is_row)

    def rows_on_gpu(self, rows: Arrays) -> Arrays:
        """Return further fields of the rows, under names of their own, for `log_likelihood_and_gradient_on_gpu`.

        They are computed once each time that a program is called, and not in each of its gradients.
        """
        del rows
        return {}
