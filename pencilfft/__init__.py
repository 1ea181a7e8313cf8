if __name__ == "pencilfft":  # imported from the source folder, not from the package
    raise ImportError("import onesided.pencilfft, not pencilfft", name="pencilfft")

from onesided.pencilfft.decomposition import PencilGeometry, block
from onesided.pencilfft.distarray import DistArray, newDistArray
from onesided.pencilfft.pencil import Pencil, Subcomm
from onesided.pencilfft.plan import PFFT
from onesided.pencilfft.transform import Transform
from onesided.pencilfft.transpose import Transpose

__all__ = [
    "PFFT",
    "DistArray",
    "Pencil",
    "PencilGeometry",
    "Subcomm",
    "Transform",
    "Transpose",
    "block",
    "newDistArray",
]
