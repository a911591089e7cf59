"""Where the wheel has what; everything else about it is in pyproject.toml.

The program's packages become part of one package, openperouter, whose entry point finds them there.
"""

from setuptools import find_packages, setup

PRIVATE = ("supervisor", "actors", "config")
FOUND = find_packages(include=[pattern for name in PRIVATE for pattern in (name, f"{name}.*")])

setup(
    packages=["openperouter", *(f"openperouter.{name}" for name in FOUND)],
    package_dir={"openperouter": "packaging/wheel/openperouter", **{f"openperouter.{name}": name for name in PRIVATE}},
    package_data={"openperouter.actors.frr.render": ["templates/*.j2"]},
)
