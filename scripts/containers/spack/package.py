# mpifl for Spack 1.0 or newer, as package.py of the package py-mpifl in a repository of your own:
#
#   spack repo create ~/spack-mpifl mpifl                        # says where packages lie, and how to add it
#   mkdir -p ~/spack-mpifl/spack_repo/mpifl/packages/py_mpifl
#   cp scripts/containers/spack/package.py ~/spack-mpifl/spack_repo/mpifl/packages/py_mpifl/
#   spack dev-build py-mpifl ^openmpi@5                    # in the checkout
#
# A test holds its requirements equal to those of pyproject.toml.

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMpifl(PythonPackage):
    """Federated learning over MPI: train one model on data that may not leave its silos."""

    license("Apache-2.0")

    version("0.2.0")

    variant("plots", default=True, description="Curves as PNG, SVG or PDF")
    variant("digits", default=True, description="The handwritten digits of the demo")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("mpi", type="run")
    depends_on("c", type=("build", "run"))  # the loops of the exact sums are compiled at the first use

    with default_args(type=("build", "run")):
        depends_on("py-h5py@3.11: ~mpi")  # a shard is opened by one process
        depends_on("py-jinja2@3.1:")
        depends_on("py-lazy-loader@0.4:")
        depends_on("py-mpi4py@4.1:")
        depends_on("py-numpy@1.26:")
        depends_on("py-pydantic@2.11:")
        depends_on("py-rich@14.3:")
        depends_on("py-safetensors@0.7:")
        depends_on("py-scipy@1.11:")
        depends_on("py-tomli@2.0:", when="^python@:3.10")
        depends_on("py-tomli-w@1.0:")
        depends_on("py-torch@2.6:")
        depends_on("py-torchmetrics@1.6:")
        depends_on("py-typer@0.18:")
        depends_on("py-matplotlib@3.8:", when="+plots")
        depends_on("py-scikit-learn@1.4:", when="+digits")
