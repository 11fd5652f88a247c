"""Starts SGLang's own HTTP server on a machine without a GPU: `python launch.py` and its arguments.

The `sgl_kernel` of PyPI holds CUDA code only. An empty module takes its place, whose functions raise when
they are called: on a CPU with PyTorch's own attention none is. All else is SGLang as it is installed.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

_PACKAGE = "sgl_kernel"
# Plain Python without CUDA, which SGLang reads at import.
_REAL = ("sgl_kernel.scalar_type",)
# What SGLang looks up by name while its modules are imported.
_CPU_OPERATORS = (
    "apply_rotary_pos_emb_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fused_dual_residual_rmsnorm_cpu",
    "fused_gdn_gating_cpu",
    "fused_moe_router_cpu",
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_sigmoid_gating_delta_rule_update_cpu",
    "fused_sigmoid_mul_cpu",
    "rmsnorm_cpu",
)


def _missing(name: str) -> Callable[..., Any]:
    def called(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{name} needs a CUDA device")

    called.__name__ = name.rpartition(".")[2]
    return called


class _Empty(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(f"{self.__name__}.{name}")


class _Finder:
    """Finds the empty module, before the one that is installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name in _REAL:
            file = importlib.metadata.distribution("sglang").locate_file(name.replace(".", "/") + ".py")
            return importlib.util.spec_from_file_location(name, str(file))
        if name.partition(".")[0] == _PACKAGE:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


# At import, since SGLang's processes are spawned and import this file again.
sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
import torch  # noqa: E402

for _name in _CPU_OPERATORS:
    setattr(torch.ops.sgl_kernel, _name, _missing(f"torch.ops.sgl_kernel.{_name}"))

if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args(sys.argv[1:]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
