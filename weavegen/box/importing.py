"""Makes importable what blocks may import besides the standard library: the module `weave`, and packages."""

import importlib.util
import os
import sys
import types

from weavegen.box import weave


def prepare(packages: str | None) -> None:
    """Let this process and its children import from the folder `packages`, after the standard library.

    PATH gets its commands, such as `django-admin`.
    """
    sys.modules["weave"] = weave
    if packages is not None:
        sys.path.append(packages)
        os.environ["PYTHONPATH"] = packages
        os.environ["PATH"] = f"{packages}/bin:{os.environ.get('PATH', os.defpath)}"
        # One thread for each processor of the host would use up the box's processes and address space.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Files written for weave-agent import libtmux and do not use it: an empty module is enough.
    if importlib.util.find_spec("libtmux") is None:
        sys.modules["libtmux"] = types.ModuleType("libtmux")
