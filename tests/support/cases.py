"""Models, each with a few rows of data that it can read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from bayesmesh.data.base import DataSpec
    from bayesmesh.models.base import Model

NUM_ROWS = 37
"""Rows of a case: few, and divisible by nothing, so that every mesh and every tile needs padding."""


OPTIONS: dict[str, dict[str, Any]] = {
    "glm": {"formula": "growth ~ age * log(mass) + species + (1 + age || site)"},
    "log_density": {
        "function": "functions:autoregression",
        "prior": {"mean": "normal(0, 2)", "slope": "normal(0, 0.5)", "noise": "half_normal(1.5)"},
        "predictive_function": "functions:next_values",
        "outcome_field": "emissions",
    },
    "neural_network": {"widths": [4]},
    "pymc": {"function": "pymc_functions:level"},
    "numpyro": {"function": "numpyro_functions:level"},
}
"""Options of models that cannot do without some."""


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

    from bayesmesh.config.registry import (
        list_components,
        load_component,
        options_class,
    )
    from bayesmesh.data.base import DataSpec, FieldSpec
    from bayesmesh.data.views import prepare_rows
    from bayesmesh.errors import ConfigError

    model_class: Any = load_component("model", name)
    model_options = options_class("model", name)(**{**OPTIONS.get(name, {}), **options})
    if name in TABLES:
        spec, rows = TABLES[name](num_rows)
        spec, rows = prepare_rows(functools.partial(model_class.prepare, model_options), spec, rows)
        return Case(name, "table", model_class, model_options, spec, rows).with_dtype(dtype)
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
        except (ConfigError, KeyError, ValueError, TypeError, AttributeError) as error:
            refusals.append(f"{source}: {type(error).__name__} {error}")
            continue
        return case.with_dtype(dtype)
    raise AssertionError(f"model '{name}' reads the data of no embedded source; add one\n" + "\n".join(refusals))


def trees(num_rows: int) -> tuple[DataSpec, dict[str, np.ndarray]]:
    """Return a table of trees: numbers, and categories of three species and five sites."""
    import numpy as np

    from bayesmesh.data.base import DataSpec, FieldSpec, Variable

    random = np.random.default_rng(5)
    age, mass = random.uniform(1, 9, num_rows), random.lognormal(1, 0.5, num_rows)
    species, site = (random.integers(0, levels, num_rows).astype(np.int32) for levels in (3, 5))
    growth = 0.3 * age - np.log(mass) + 0.5 * species + random.normal(0, 0.5, 5)[site] + random.normal(0, 0.4, num_rows)
    rows = {
        "age": age, "mass": mass, "species": species, "site": site, "growth": growth,
        "leaves": random.poisson(np.exp(0.2 * age)).astype(np.int64), "plots": random.integers(5, 9, num_rows),
        "alive": (random.uniform(size=num_rows) < 0.6).astype(np.int64), "stage": random.integers(0, 4, num_rows),
    }  # fmt: skip
    rows["seeds"] = random.binomial(rows["plots"], 0.4)
    levels = {"species": ("ash", "elm", "fir"), "site": tuple("abcde"), "stage": ("seed", "sprout", "young", "old")}
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    variables = {k: Variable("category", levels=levels[k]) if k in levels else Variable("number") for k in rows}
    return DataSpec(num_rows, fields, {}, "float64", variables=variables), rows


def condensed(
    own: Any, spec: DataSpec, table: dict[str, np.ndarray]
) -> tuple[DataSpec, dict[str, np.ndarray], DataSpec, dict[str, np.ndarray]]:
    """Return prepared rows of a `glm` with their description, and the condensed ones with theirs."""
    import functools

    from bayesmesh.data.base import FieldSpec
    from bayesmesh.data.views import CondensedShards, prepare_rows
    from bayesmesh.models.glm.model import Glm

    blocks = [{k: v[:150] for k, v in table.items()}, {k: v[150:] for k, v in table.items()}]
    preparation = Glm.prepare(own, spec, lambda: iter(blocks))
    assert preparation is not None
    assert preparation.condense is not None
    found = preparation.condense()
    assert found is not None
    prepared, rows = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    shards = CondensedShards.__new__(CondensedShards)
    shards.__dict__ |= {
        "_rows": found.fields, "_about": prepared, "_counts": found.entry_counts, "constants": prepared.constants,
        "_are_sums": found.are_sums, "num_rows": len(next(iter(found.fields.values()))),
        "fields": {name: FieldSpec(v.shape[1:], v.dtype.name) for name, v in found.fields.items()},
    }  # fmt: skip
    few = shards.spec("float64")
    return prepared, rows, few, shards.read_rows(0, few.num_rows)


def ratings(num_rows: int) -> tuple[DataSpec, dict[str, np.ndarray]]:
    """Return one rating of each user: tests of the contract take an entry of local latents for each row."""
    import numpy as np

    from bayesmesh.data.base import DataSpec, FieldSpec, Variable

    random = np.random.default_rng(6)
    film, user = (x.astype(np.int32) for x in (random.integers(0, 8, num_rows), random.permutation(num_rows)))
    rows = {"user": user, "film": film, "rating": random.integers(1, 6, num_rows).astype(np.uint8)}
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    levels = {"user": tuple(f"u{i}" for i in range(num_rows)), "film": tuple("abcdefgh")}
    variables = {k: Variable("category", levels=levels[k]) if k in levels else Variable("number") for k in rows}
    return DataSpec(num_rows, fields, {}, "float64", variables=variables), rows


TABLES: dict[str, Callable[[int], tuple[DataSpec, dict[str, np.ndarray]]]] = {
    "glm": trees,
    "rating_factorization": ratings,
}
"""Tables of models that read no embedded source."""


def _read_embedded(source: str) -> Any:
    """Return the dataset of a source that needs no files, at its default options, else None."""
    from bayesmesh.config.registry import load_component, options_class
    from bayesmesh.data.base import Source

    source_class = load_component("source", source)
    if source_class.fetch is not Source.fetch:
        return None
    return source_class(options_class("source", source)()).read(Path("nowhere"))
