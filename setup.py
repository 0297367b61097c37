"""The packages of the wheel; everything else about the distribution stands in pyproject.toml.

`conf/` (with `conf/scenario`, a link to `scenarios/`) and `notebooks/` live beside the code in the checkout and inside
it when installed: real files in `bench/conf` and `bench/notebooks`. This file exists because setuptools' own discovery
cannot add such folders to the packages it finds, and a list by hand would have to be kept up with every new folder.
"""

from pathlib import Path

from setuptools import find_packages, setup

DATA = {"bench.conf": "conf", "bench.notebooks": "notebooks"}
present = {package: folder for package, folder in DATA.items() if Path(folder).is_dir()}

setup(packages=[*find_packages(include=["bench", "bench.*"]), *present], package_dir=present)
