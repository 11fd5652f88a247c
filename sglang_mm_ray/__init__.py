"""Exact, fast image preprocessing for multi-node SGLang, spread over Ray.

Importing this package loads neither Ray nor torch; a name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import pillow_order

if TYPE_CHECKING:
    from ._core import __version__ as __version__
    from .config import PoolConfig as PoolConfig
    from .errors import DeadlineExceeded as DeadlineExceeded
    from .errors import DecodeError as DecodeError
    from .errors import FetchError as FetchError
    from .errors import InputError as InputError
    from .errors import InternalError as InternalError
    from .errors import InvalidArgument as InvalidArgument
    from .errors import LimitExceeded as LimitExceeded
    from .errors import PoisonImage as PoisonImage
    from .errors import PoolClosed as PoolClosed
    from .errors import PoolNotFound as PoolNotFound
    from .errors import PoolOverloaded as PoolOverloaded
    from .errors import PreprocessError as PreprocessError
    from .errors import ResultLost as ResultLost
    from .errors import SourceRefused as SourceRefused
    from .errors import UnsupportedFormat as UnsupportedFormat
    from .errors import WorkerLost as WorkerLost
    from .pool.pool import PreprocessPool as PreprocessPool
    from .results.gathering import gather as gather
    from .results.image import ProcessedImage as ProcessedImage
    from .sources.policy import SourcePolicy as SourcePolicy

_MODULE_OF = {
    "DeadlineExceeded": "errors",
    "DecodeError": "errors",
    "FetchError": "errors",
    "InputError": "errors",
    "InternalError": "errors",
    "InvalidArgument": "errors",
    "LimitExceeded": "errors",
    "PoisonImage": "errors",
    "PoolClosed": "errors",
    "PoolConfig": "config",
    "PoolNotFound": "errors",
    "PoolOverloaded": "errors",
    "PreprocessError": "errors",
    "PreprocessPool": "pool.pool",
    "ProcessedImage": "results.image",
    "ResultLost": "errors",
    "SourcePolicy": "sources.policy",
    "SourceRefused": "errors",
    "UnsupportedFormat": "errors",
    "WorkerLost": "errors",
    "__version__": "_core",
    "gather": "results.gathering",
}

__all__ = [
    "DeadlineExceeded",
    "DecodeError",
    "FetchError",
    "InputError",
    "InternalError",
    "InvalidArgument",
    "LimitExceeded",
    "PoisonImage",
    "PoolClosed",
    "PoolConfig",
    "PoolNotFound",
    "PoolOverloaded",
    "PreprocessError",
    "PreprocessPool",
    "ProcessedImage",
    "ResultLost",
    "SourcePolicy",
    "SourceRefused",
    "UnsupportedFormat",
    "WorkerLost",
    "__version__",
    "gather",
]


pillow_order.adopt()


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
