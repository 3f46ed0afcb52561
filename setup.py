"""Put the workflow, its profiles and its conda environment into the wheel; all else is in pyproject.toml.

They stay at the root of the repository, where Snakemake and its catalogue look for them, so there is one copy of each.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("workflow", "profiles", "envs/bayesmesh.yaml", "envs/bayesmesh.post-deploy.sh")


class BuildWithWorkflow(build_py):
    """Build the package, with these files in its folder `repository`."""

    def run(self) -> None:
        super().run()
        # An editable installation finds them in the checkout.
        if self.editable_mode:
            return
        folder = Path(self.build_lib, "bayesmesh", "repository")
        shutil.rmtree(folder, ignore_errors=True)
        for name in SHIPPED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if Path(name).is_dir() else shutil.copy
            copy(name, folder / name)


setup(cmdclass={"build_py": BuildWithWorkflow})
