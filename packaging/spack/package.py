"""Spack package of collscope: put it into a repository of yours, packages/py-collscope/."""

from spack.package import *


class PyCollscope(PythonPackage):
    """What the collectives of a distributed GPU job cost, and what they should cost."""

    # The folder that holds this checkout: spack dev-build, or `spack develop py-collscope`.
    license("Apache-2.0")

    version("0.1.0")
    version("main", branch="main")

    depends_on("cxx", type="build")
    depends_on("c", type="build")
    depends_on("cmake@3.26:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@1.1:", type="build")
    depends_on("py-nanobind@3.1:", type="build")

    depends_on("mpi", type=("build", "link", "run"))  # the site's own, for replay, tune and bench
    depends_on("python@3.10:", type=("build", "link", "run"))
    depends_on("py-typer@0.29", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-nanoarrow@0.6:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-msgspec@0.19:", type=("build", "run"))
    depends_on("py-zstandard@0.22:", type=("build", "run"))
    depends_on("py-matplotlib@3.8:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-tomli@2:", when="^python@:3.10", type=("build", "run"))
