"""Where the wheel has what; everything else about it is in pyproject.toml.

The program's packages become part of one package, openperouter, whose entry point finds them there.
"""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PRIVATE = ("supervisor", "actors", "config")
FOUND = find_packages(include=[pattern for name in PRIVATE for pattern in (name, f"{name}.*")])
#: What "openperouter manifests" prints and writes; supervisor/operations/cluster/manifests.py finds it there.
MANIFESTS = ("crds", "kubernetes", "monitoring", "kustomize", "chart")


class BuildWithManifests(build_py):
    """Also lays the manifests beside the packages: they are no packages themselves."""

    def run(self) -> None:
        """Build, and copy."""
        super().run()
        for name in MANIFESTS:
            target = Path(self.build_lib) / "openperouter" / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(Path("packaging") / name, target, ignore=shutil.ignore_patterns("*.py", "__pycache__"))


setup(
    cmdclass={"build_py": BuildWithManifests},
    packages=["openperouter", *(f"openperouter.{name}" for name in FOUND)],
    package_dir={"openperouter": "packaging/wheel/openperouter", **{f"openperouter.{name}": name for name in PRIVATE}},
    package_data={
        "openperouter.actors.frr.render": ["templates/*.j2"],
        "openperouter.supervisor.cli.verbs.node.web": ["templates/*"],
    },
)
