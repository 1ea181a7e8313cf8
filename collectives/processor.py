"""Which processor this is: measurements hold for one."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path


@cache
def processor() -> str:
    """Local. The processor's model, as the kernel names it."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()
