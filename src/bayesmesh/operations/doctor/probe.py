"""doctor: the process that starts JAX; prints one line of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def look() -> dict[str, Any]:
    """Return JAX's version and platform, the kind of each device, and the number of GPU device files.

    With them comes the largest relative error of a float32 matrix product.
    """
    import jax
    import numpy as np

    # The settings of `sampling.density.mesh.configure_jax`.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    devices = jax.devices()
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 256, 256)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.max(np.abs(np.asarray(jax.numpy.dot(a, b)) - exact)) / np.max(np.abs(exact))
    return {
        "version": jax.__version__,
        "platform": devices[0].platform,
        "kinds": [d.device_kind for d in devices],
        "error": float(error),
        "gpu_files": len(list(Path("/dev").glob("nvidia[0-9]*"))),
    }


if __name__ == "__main__":
    print(json.dumps(look()))
