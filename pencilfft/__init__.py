"""Parallel FFTs of distributed arrays, with their transposes as persistent requests."""

if __name__ == "pencilfft":  # imported from the source folder, not from the package
    raise ImportError("import onesided.pencilfft, not pencilfft", name="pencilfft")

from onesided.pencilfft.decomposition import PencilGeometry, block
from onesided.pencilfft.distarray import DistArray, fftshift, ifftshift, newDistArray
from onesided.pencilfft.gridfield import read_field, write_field
from onesided.pencilfft.install import install, replace, uninstall
from onesided.pencilfft.io.filebase import FileBase
from onesided.pencilfft.io.hdf5 import HDF5File, consolidate
from onesided.pencilfft.io.netcdf import NCFile
from onesided.pencilfft.io.xdmf import generate_xdmf
from onesided.pencilfft.kernels.wisdom import export_wisdom, forget_wisdom, import_wisdom
from onesided.pencilfft.pencil import Pencil, Subcomm
from onesided.pencilfft.plan import PFFT
from onesided.pencilfft.redistribution import Transfer
from onesided.pencilfft.transform import Transform

__all__ = [
    "PFFT",
    "DistArray",
    "FileBase",
    "HDF5File",
    "NCFile",
    "Pencil",
    "PencilGeometry",
    "Subcomm",
    "Transfer",
    "Transform",
    "block",
    "consolidate",
    "export_wisdom",
    "fftshift",
    "forget_wisdom",
    "generate_xdmf",
    "ifftshift",
    "import_wisdom",
    "install",
    "newDistArray",
    "read_field",
    "replace",
    "uninstall",
    "write_field",
]
