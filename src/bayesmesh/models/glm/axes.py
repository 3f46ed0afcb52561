"""Names of the axes of latents and summaries: columns of the design, levels of groups and of the outcome, and effects."""

from __future__ import annotations

from collections.abc import Mapping

from bayesmesh.models.base import Axis, DataSpec
from bayesmesh.models.glm.coefficients import NAME, Original
from bayesmesh.models.glm.design import Source, latent_name, levels_of
from bayesmesh.models.glm.rows import Plan, effect_columns


def axes_of(plan: Plan, spec: DataSpec, original: Original | None) -> Mapping[str, tuple[Axis | None, ...]]:
    """Return latent or summary -> its axes.

    Args:
        plan: plan of the model.
        spec: description of the prepared data.
        original: coefficients in the units of the table, where those of the columns differ.
    """
    source = Source(spec.source_fields, spec.variables, spec.labels)
    labels = [label for columns in plan.columns for label in columns.labels]
    # Codes without names are their own names; without labels, level 1 would bear the index 0.
    levels = levels_of(source, plan.formula.outcome) or tuple(map(str, range(plan.num_levels)))
    outcome = latent_name(plan.formula.outcome.text)
    outputs = (Axis(outcome, levels[1:]),) if plan.output_shape else ()
    axes: dict[str, tuple[Axis | None, ...]] = {"intercept": outputs, "intercept_at_zero": outputs}
    axes["predictor"] = (None, *outputs)
    axes["baseline"] = (Axis(outcome, levels or None),)
    for latent, indices in plan.blocks.items():
        name = latent.replace("coefficients", "coefficient", 1)
        axes[latent] = (Axis(name, tuple(labels[i] for i in indices)), *outputs)
    for columns in plan.columns:
        name = latent_name(columns.name)
        axes[f"b_{name}"] = outputs if columns.is_single else (Axis(name, columns.names), *outputs)
    if original is not None:
        axes[NAME] = (Axis("original", original.labels), *outputs)
    for group, term in zip(plan.groups, plan.formula.groups, strict=True):
        own = tuple(label for columns in effect_columns(source, term) for label in columns.labels)
        effects = (*(["intercept"] if group.has_intercept else []), *own)
        about = spec.variables.get(term.group)
        effect = Axis(f"effect_{group.name}", effects)
        axes[group.sd] = (effect,)
        axes[group.effects] = (Axis(group.name, about.levels if about is not None and about.levels else None), effect)
        pairs = tuple(f"{below}~{name}" for i, name in enumerate(effects) for below in effects[:i])
        axes[group.correlation] = (effect, effect)
        axes[group.correlations] = (Axis(f"pair_{group.name}", pairs),)
    return axes
