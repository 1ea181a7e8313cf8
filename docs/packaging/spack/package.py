"""A package for Spack. At a release: the url of the source archive, its version and sha256."""

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyOnesided(PythonPackage):
    """Persistent collectives over one-sided MPI communication, with a parallel FFT and a
    distributed sparse matrix built on them."""

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("fast", default=True, description="Further kernels of transforms: ducc0, pyFFTW")
    variant("plot", default=False, description="Pictures by matplotlib")

    depends_on("c", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-numpy@2.0:", type=("build", "run"))
    depends_on("py-scipy@1.15:", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-h5py@3.12:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-ducc@0.34:", when="+fast", type="run")
    depends_on("py-pyfftw@0.14:", when="+fast", type="run")
    depends_on("py-matplotlib@3.8:", when="+plot", type="run")

    import_modules = ["onesided.collectives", "onesided.pencilfft", "onesided.sparse"]
