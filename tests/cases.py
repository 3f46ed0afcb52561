"""Models, each with a few rows of data that it can read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from bayesmesh.data.base import DataSpec
    from bayesmesh.models.base import Model

NUM_ROWS = 37
"""Rows of a case: few, and divisible by nothing, so that every mesh and every tile needs padding."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with a few rows of data that it can read.

    Attributes:
        name: of the model in the registry.
        source: the embedded source that the rows come from.
        spec: of the rows, float64.
        rows: field -> (num_rows, ...).
    """

    name: str
    source: str
    model_class: type[Model]
    options: Any
    spec: DataSpec
    rows: Mapping[str, np.ndarray]

    def with_dtype(self, dtype: str) -> Case:
        """Return the same case in another precision."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, dtype=dtype))

    @property
    def model(self) -> Model:
        return self.model_class(self.options, self.spec)

    @property
    def arrays(self) -> dict[str, Any]:
        """The rows on the device; floating-point fields in the case's dtype."""
        import jax.numpy as jnp

        return {k: jnp.asarray(v, self.spec.dtype if v.dtype.kind == "f" else v.dtype) for k, v in self.rows.items()}


def make_case(name: str, dtype: str = "float64", num_rows: int = NUM_ROWS, **options: Any) -> Case:
    import jax

    from bayesmesh.config.registry import component_path, list_components, load_component, read_options
    from bayesmesh.data.base import DataSpec, FieldSpec

    model_class = load_component("model", name)
    model_options = read_options(component_path("model", name))(**options)
    refusals = []
    for source in list_components("source"):
        dataset = _read_embedded(source)
        if dataset is None:
            continue
        rows = {k: v[:num_rows] for k, v in dataset.rows.items()}
        fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
        spec = DataSpec(len(next(iter(rows.values()))), fields, dataset.constants, "float64")
        case = Case(name, source, model_class, model_options, spec, rows)
        try:
            latents = jax.eval_shape(lambda case=case: case.model.prior(case.spec).sample(seed=jax.random.key(0)))
            jax.eval_shape(case.model.log_likelihood, latents, case.arrays)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            refusals.append(f"{source}: {type(error).__name__} {error}")
            continue
        return case.with_dtype(dtype)
    raise AssertionError(f"model '{name}' reads the data of no embedded source; add one\n" + "\n".join(refusals))


def _read_embedded(source: str) -> Any:
    """Return the dataset of a source that needs no files, at its default options, else None."""
    from bayesmesh.config.registry import component_path, load_component, read_options
    from bayesmesh.data.base import Source

    source_class = load_component("source", source)
    if source_class.fetch is not Source.fetch:
        return None
    return source_class(read_options(component_path("source", source))()).read(Path("nowhere"))
