"""What pyproject.toml cannot say: the labs, the notebooks and the batch scripts travel in the wheel."""

from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import setup
from setuptools.command.build_py import build_py

MATERIAL = ("labs", "notebooks", "slurm")


class WithMaterial(build_py):
    """Copies them to where `farandole_tools.material` looks in an installation."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # which reads them where they are
            for name in MATERIAL:
                copytree(
                    name,
                    Path(self.build_lib, "farandole_tools", "material", name),
                    dirs_exist_ok=True,
                    ignore=ignore_patterns("__pycache__", ".ipynb_checkpoints", "runs"),
                )


setup(cmdclass={"build_py": WithMaterial})
