"""XDMF: what lets ParaView and VisIt open an HDF5 file of fields.

XDMF counts axes as arrays do, slowest first, while its X is the fastest axis: the last axis of a
field is X. Two-dimensional fields are written as three-dimensional ones with a single plane.
"""

from __future__ import annotations

import dataclasses
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from onesided.collectives.errors import PatternError
from onesided.pencilfft.io.filebase import naming
from onesided.pencilfft.io.selection import Selection
from onesided.pencilfft.io.store import Store

NUMBERS = {"f": "Float", "i": "Int", "u": "UInt"}


@dataclass(frozen=True)
class Axis:
    """Local. One axis of a mesh: origin and spacing, or all coordinates and their path."""

    length: int
    numbers: tuple[float, ...]
    path: str = dataclasses.field(default="", compare=False)


@dataclass(frozen=True)
class Mesh:
    """Local. Where the points of a field are: three axes, the slowest first."""

    uniform: bool
    axes: tuple[Axis, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(axis.length for axis in self.axes)


@dataclass(frozen=True)
class Field:
    """Local. One dataset to be shown: a field or a slice of it, at one step."""

    name: str
    part: str
    step: int
    dataset: Any
    mesh: Mesh
    rank: int

    @property
    def time(self) -> float:
        """The attribute ``time`` where it was stored, else the step."""
        return float(self.dataset.attrs.get("time", self.step))


def generate_xdmf(
    h5filename: str | os.PathLike[str],
    periodic: bool | Sequence[bool] = True,
    order: str = "paraview",
) -> list[str]:
    """Local. Write an XDMF file for each mesh in an HDF5 file; call it on one rank.

    ``u.xdmf`` has the two- and three-dimensional real fields of ``u.h5``, ``u_slice_4_slice.xdmf``
    their slices; fields on meshes that differ go into files with the field's name. Tensors are
    shown by component. The time is the attribute ``time`` of a step, or else its number.
    ``periodic``, for all axes or each, says that a domain given by origin and length ends one
    spacing after the last point. ``order`` is "paraview" or "visit", as in mpi4py-fft; both
    read the same file.

    Returns the names of the files. Raises PatternError where there is nothing to show.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> u = DistArray((4, 4), [0, 1], val=2.0)
    >>> HDF5File(f"{folder}/u.h5", mode="w").write(0, {"u": [u]})
    >>> len(generate_xdmf(f"{folder}/u.h5")) if comm.rank == 0 else 1
    1
    """
    if order.lower() not in ("paraview", "visit"):
        raise PatternError(f"order is {order!r}, not 'paraview' or 'visit'")
    store = Store(h5filename)
    written: list[str] = []
    meshes: dict[tuple[str, Mesh], list[Field]] = {}
    with store.open() as file, naming(store.main):
        for field in _fields(file, periodic):
            meshes.setdefault((field.part, field.mesh), []).append(field)
        if not meshes:
            raise PatternError(f"{h5filename} has no real field of two or three dimensions")
        for (part, _), fields in meshes.items():
            base = os.fspath(h5filename).removesuffix(".h5") + (f"_{part}" if part else "")
            name = f"{base}.xdmf"
            if name in written:
                name = f"{base}_{fields[0].name}.xdmf"
            _write(name, _document(os.path.basename(h5filename), fields))
            written.append(name)
    return written


def _fields(file: Any, periodic: bool | Sequence[bool]) -> Iterator[Field]:
    """Everything in an open main file that can be shown."""
    for name, group in file.items():
        if not isinstance(group, h5py.Group) or "shape" not in group.attrs:
            continue
        shape, rank = tuple(int(n) for n in group.attrs["shape"]), int(group.attrs["rank"])
        for ndim in (2, 3):
            for key, item in group.get(f"{ndim}D", {}).items():
                steps = item.items() if isinstance(item, h5py.Group) else [(key, item)]
                part = key if isinstance(item, h5py.Group) else ""
                shown = [(int(s), d) for s, d in steps if d.dtype.kind in NUMBERS]
                if not shown:
                    continue
                mesh = _mesh(group, Selection.named(shape, part), periodic)
                for step, dataset in shown:
                    yield Field(name, part, step, dataset, mesh, rank)


def _mesh(group: Any, selection: Selection, periodic: bool | Sequence[bool]) -> Mesh:
    """The mesh of a field or slice; a plane of a volume is put where it lies."""
    shape, uniform = selection.shape, "mesh" not in group
    ends = [periodic] * len(shape) if isinstance(periodic, bool) else list(periodic)
    if len(ends) < len(shape):
        raise PatternError(f"periodic has {len(ends)} entries, {group.name} {len(shape)} axes")
    axes: list[Axis] = []
    for i, entry in enumerate(selection.entries):
        if isinstance(entry, range):
            chosen = entry
        elif len(shape) == 3:
            chosen = range(entry, entry + 1)
        else:
            continue
        if uniform:
            origin, length = (float(x) for x in group[f"domain/x{i}"])
            spacing = length / max(1, shape[i] - (not ends[i]))
            start = origin + spacing * chosen.start
            axes.append(Axis(len(chosen), (start, spacing * chosen.step)))
        else:
            path = f"{group.name}/mesh/x{i}"
            numbers = tuple(float(x) for x in group[path][chosen.start : chosen.stop : chosen.step])
            whole = chosen == range(len(group[path]))
            axes.append(Axis(len(chosen), numbers, path if whole else ""))
    plane = Axis(1, (0.0, 1.0) if uniform else (0.0,))
    return Mesh(uniform, (plane,) * (3 - len(axes)) + tuple(axes))


def _document(h5name: str, fields: Sequence[Field]) -> ET.Element:
    """The XDMF document of fields that share a mesh: a grid for each step."""
    root = ET.Element("Xdmf", Version="2.2")
    domain = ET.SubElement(root, "Domain")
    series = ET.SubElement(
        domain, "Grid", Name="steps", GridType="Collection", CollectionType="Temporal"
    )
    steps: dict[int, list[Field]] = {}
    for field in fields:
        steps.setdefault(field.step, []).append(field)
    for step, shown in sorted(steps.items()):
        grid = ET.SubElement(series, "Grid", Name=f"step {step}", GridType="Uniform")
        ET.SubElement(grid, "Time", Value=f"{shown[0].time!r}")
        _geometry(grid, shown[0].mesh, h5name)
        for field in shown:
            _attributes(grid, field, h5name)
    return root


def _geometry(grid: ET.Element, mesh: Mesh, h5name: str) -> None:
    kind = "3DCoRectMesh" if mesh.uniform else "3DRectMesh"
    ET.SubElement(grid, "Topology", TopologyType=kind, Dimensions=_words(mesh.lengths))
    if mesh.uniform:
        place = ET.SubElement(grid, "Geometry", GeometryType="ORIGIN_DXDYDZ")
        for k in (0, 1):  # all origins, all spacings
            _inline(place, [axis.numbers[k] for axis in mesh.axes])
        return
    place = ET.SubElement(grid, "Geometry", GeometryType="VXVYVZ")
    for axis in reversed(mesh.axes):
        if axis.path:
            item = ET.SubElement(place, "DataItem", Format="HDF", NumberType="Float")
            item.attrib |= {"Precision": "8", "Dimensions": str(axis.length)}
            item.text = f"{h5name}:{axis.path}"
        else:
            _inline(place, axis.numbers)


def _inline(parent: ET.Element, numbers: Sequence[float]) -> None:
    item = ET.SubElement(parent, "DataItem", Format="XML", NumberType="Float", Precision="8")
    item.set("Dimensions", str(len(numbers)))
    item.text = " ".join(repr(float(x)) for x in numbers)


def _attributes(grid: ET.Element, field: Field, h5name: str) -> None:
    """One scalar attribute for a field, or for each component of a tensor."""
    dataset, lengths = field.dataset, field.mesh.lengths
    spatial = dataset.shape[field.rank :]
    for index in np.ndindex(dataset.shape[: field.rank]):
        name = field.name + "".join(map(str, index))
        attribute = ET.SubElement(grid, "Attribute", Name=name, Center="Node")
        attribute.set("AttributeType", "Scalar")
        parent = attribute
        if index:
            parent = ET.SubElement(attribute, "DataItem", ItemType="HyperSlab")
            parent.set("Dimensions", _words(lengths))
            cut = ET.SubElement(parent, "DataItem", Format="XML")
            cut.set("Dimensions", f"3 {dataset.ndim}")
            start, count = index + (0,) * len(spatial), (1,) * field.rank + spatial
            cut.text = " ".join(map(_words, (start, (1,) * dataset.ndim, count)))
        item = ET.SubElement(parent, "DataItem", Format="HDF")
        item.set("NumberType", NUMBERS[dataset.dtype.kind])
        item.set("Precision", str(dataset.dtype.itemsize))
        item.set("Dimensions", _words(dataset.shape if index else lengths))
        item.text = f"{h5name}:{dataset.name}"


def _words(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _write(name: str, root: ET.Element) -> None:
    """Write a document, whole or not at all."""
    ET.indent(root)
    with naming(name):
        ET.ElementTree(root).write(f"{name}.new", encoding="utf-8", xml_declaration=True)
        os.replace(f"{name}.new", name)
