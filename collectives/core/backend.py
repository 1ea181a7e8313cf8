"""The build backend: setuptools, and a compiler from the package index where the machine has none.

``pip install`` alone then gives the compiled core. Where Python's headers are missing as well
nothing can be compiled, and rounds run in Python, which ``onesided doctor`` tells.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the other hooks are setuptools' own)

#: The C compiler of Zig, as a package of the index.
COMPILER = "ziglang"


def _missing() -> bool:
    """Whether this machine has no C compiler."""
    named = os.environ.get("CC", "").split()
    return not any(shutil.which(name) for name in [*named[:1], "cc", "gcc", "clang"])


def _needs(needed: list[str]) -> list[str]:
    return [*needed, COMPILER] if _missing() else needed


def _choose_compiler() -> None:
    """Zig compiles for this very processor unless it is told not to, and a wheel travels. Whether
    Python has a global lock is told here, because the sources ask before they include Python.h,
    which knows it."""
    if _missing():
        call = f"{shlex.quote(sys.executable)} -m {COMPILER} cc -mcpu=baseline"
        os.environ |= {"CC": call, "LDSHARED": f"{call} -shared"}
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -DPy_GIL_DISABLED=1"


def _for_every_python(config_settings: Any) -> dict[str, Any]:
    """The settings with the tag of the stable interface, which the modules keep to: one wheel for
    every Python from 3.11 on that has a global lock."""
    settings = dict(config_settings or {})
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        given = settings.get("--build-option", [])
        given = [given] if isinstance(given, str) else list(given)
        settings["--build-option"] = [*given, "--py-limited-api=cp311"]
    return settings


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return _needs(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return _needs(build_meta.get_requires_for_build_editable(config_settings))


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None
) -> str:
    _choose_compiler()
    settings = _for_every_python(config_settings)
    return build_meta.build_wheel(wheel_directory, settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None
) -> str:
    _choose_compiler()
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
