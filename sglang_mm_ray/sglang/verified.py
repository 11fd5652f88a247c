"""Ends SGLang's launch if a processor of this package cannot be imported.

SGLang imports every module of the package, takes an error for a warning, and would serve with its own
processors. It imports this one too, after which either all are there or the server does not start.
"""

from __future__ import annotations

import importlib
import pkgutil

from . import __name__ as _package
from . import __path__ as _path

for _module in pkgutil.iter_modules(_path, _package + "."):
    if not _module.ispkg and _module.name != __name__:
        try:
            importlib.import_module(_module.name)
        except Exception as error:
            # Not an `Exception`: SGLang would go on.
            raise SystemExit(
                f"{_module.name} cannot be imported ({type(error).__name__}: {error}), so images "
                "would not go to the pool; install sglang-mm-ray with its extra sglang, or unset "
                "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE"
            ) from error
