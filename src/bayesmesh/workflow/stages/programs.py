"""Make the program of a chain group from the specification of a job."""

from __future__ import annotations

from bayesmesh.sampling.program.sizes import ProgramSettings
from bayesmesh.workflow.components import Component
from bayesmesh.workflow.specs import StageSpec


def program_settings(spec: StageSpec, model: Component, kernel: Component) -> ProgramSettings:
    """Return the components and settings of a specification of `compile` or `sample`, from which its program is made."""
    return ProgramSettings(
        experiment=spec.experiment,
        model_name=spec.model.name,
        kernel_name=spec.kernel.name,
        model=model,
        kernel=kernel,
        sampling=spec.sampling,
        compute=spec.compute,
        num_chains=spec.num_chains,
    )
