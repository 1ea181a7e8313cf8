"""The site: ``make docs`` builds it into docs/_build, warnings are errors, no network is used."""

import sys
from functools import partial
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

from docstrings import listed  # noqa: E402

project = "Onesided"
author = "The Onesided developers"
copyright = author
version = release = installed("onesided")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinxcontrib.autoprogram",
    "docstrings",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"Onesided {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence", "dollarmath", "fieldlist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: f"numpy.typing.{name}" for name in ("DTypeLike", "ArrayLike")}
autosummary_context = {"listed": partial(listed)}  # plain functions are refused
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_google_docstring = False

# of what the pages and docstrings refer to in other projects
intersphinx_mapping = {
    "mpi4py": ("https://mpi4py.readthedocs.io/en/stable/", "inventories/mpi4py.inv"),
    "numpy": ("https://numpy.org/doc/stable/", "inventories/numpy.inv"),
    "scipy": ("https://docs.scipy.org/doc/scipy/", "inventories/scipy.inv"),
    "python": ("https://docs.python.org/3/", "inventories/python.inv"),
}
