if __name__ == "pencilfft":  # imported from the source folder, not from the package
    raise ImportError("import onesided.pencilfft, not pencilfft", name="pencilfft")

from .decomposition import Pencil, block
from .distarray import DistArray, newDistArray
from .plan import PFFT
from .transform import Transform
from .transpose import Transpose

__all__ = [
    "PFFT",
    "DistArray",
    "Pencil",
    "Transform",
    "Transpose",
    "block",
    "newDistArray",
]
