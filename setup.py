"""What the wheel holds: the package `harness` and nothing else.

The folders beside the engine (methods, spaces, studies, reports) go inside it, as `harness/_shipped/`, where
discovery looks for them: a top-level package called `methods` or `reports` could be anybody's.
"""

from setuptools import find_namespace_packages, find_packages, setup

CONTENT = ("methods", "spaces", "studies", "reports")

shipped = find_namespace_packages(
    include=[pattern for folder in CONTENT for pattern in (folder, f"{folder}.*")],
    exclude=["*__pycache__*", "reports.measured*"],
)

setup(
    packages=[*find_packages(include=["harness", "harness.*"]), *(f"harness._shipped.{name}" for name in shipped)],
    package_dir={f"harness._shipped.{folder}": folder for folder in CONTENT},
    package_data={"": ["*.npz", "*.npy", "*.json", "*.css", "*.js", "*.j2", "page/*", "*.template", "py.typed"]},
)
