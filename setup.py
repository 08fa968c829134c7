"""What the wheel holds: the package `harness` and nothing else.

The folders beside the engine (methods, spaces, studies, reports) go inside it, as `harness/_shipped/`, where
discovery looks for them: a top-level package called `methods` or `reports` could be anybody's.
"""

import shutil
from pathlib import Path

from setuptools import find_namespace_packages, find_packages, setup
from setuptools.command.build_py import build_py

CONTENT = ("methods", "spaces", "studies", "reports")

shipped = find_namespace_packages(
    include=[pattern for folder in CONTENT for pattern in (folder, f"{folder}.*")],
    exclude=["*__pycache__*", "reports.measured*"],
)


class Build(build_py):
    """Also the list of tested versions, whose checksum every run records."""

    def run(self):
        super().run()
        if not self.editable_mode:
            shutil.copy("constraints.txt", Path(self.build_lib, "harness", "_shipped"))


setup(
    cmdclass={"build_py": Build},
    packages=[*find_packages(include=["harness", "harness.*"]), *(f"harness._shipped.{name}" for name in shipped)],
    package_dir={f"harness._shipped.{folder}": folder for folder in CONTENT},
    package_data={"": ["*.npz", "*.npy", "*.json", "*.css", "*.js", "*.j2", "page/*", "*.template", "py.typed"]},
)
