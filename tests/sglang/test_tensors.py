"""Read-only arrays become tensors of the same memory, bit for bit, without a warning; layouts are numpy's."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra: sglang)")

from sglang_mm_ray.sglang.layout import AS_STORED, Layout  # noqa: E402
from sglang_mm_ray.sglang.tensors import as_tensor, shared_view  # noqa: E402


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def test_bfloat16_bits_are_reinterpreted_and_never_cast() -> None:
    bits = _read_only(np.array([0x3F80, 0xBF80, 0x7FC0, 0x0001], np.uint16))
    tensor = as_tensor(bits, "bfloat16")
    assert tensor.dtype == torch.bfloat16
    assert tensor[:2].tolist() == [1.0, -1.0]
    assert torch.isnan(tensor[2])
    assert tensor.view(torch.int16).numpy().view(np.uint16).tolist() == bits.tolist()


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize("shape", [(0, 3), (1,), (5, 7, 3)])
def test_memory_is_shared_for_every_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    source = _read_only(np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape))
    tensor = as_tensor(source, dtype)
    assert tensor.shape == shape
    assert tensor.numpy().tobytes() == source.tobytes()
    if source.size:
        assert tensor.data_ptr() == source.ctypes.data
    assert not source.flags.writeable


def test_the_tensor_keeps_the_memory_alive() -> None:
    tensor = as_tensor(_read_only(np.full(1 << 20, 7, np.uint8)), "uint8")
    others = [np.zeros(1 << 20, np.uint8) for _ in range(8)]
    assert int(tensor.min()) == int(tensor.max()) == 7
    assert others[0][0] == 0


def test_a_writable_array_is_returned_as_it_is() -> None:
    array = np.zeros(4, np.uint8)
    assert shared_view(array) is array


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_new_axis_is_expanded_and_not_stored(dtype: str) -> None:
    stored = np.arange(2 * 3 * 3 * 3, dtype=np.float32 if dtype == "float32" else np.uint16).reshape(
        2, 3, 3, 3
    )
    patches = as_tensor(stored, dtype)
    layout = Layout(axis=1, copies=2, is_new=True)
    expanded = as_tensor(layout.apply(stored), dtype)
    assert expanded.shape == (2, 2, 3, 3, 3) == layout.shape(stored.shape)
    assert torch.equal(expanded, patches.unsqueeze(1).expand(-1, 2, -1, -1, -1))
    assert expanded.untyped_storage().data_ptr() == patches.untyped_storage().data_ptr()


def test_flat_rows_hold_each_channels_copies_side_by_side() -> None:
    stored = np.arange(2 * 3 * 1 * 2 * 2, dtype=np.float32).reshape(2, 3, 1, 2, 2)
    layout = Layout(axis=2, copies=2, is_flat=True)
    rows = layout.apply(stored)
    assert layout.shape(stored.shape) == (2, 24)
    assert rows.tolist() == np.repeat(stored, 2, axis=2).reshape(2, -1).tolist()
    assert layout.apply(rows) is rows, "what has its copies already stays"
    out = np.zeros((2, 24), np.float32)
    layout.write(stored, out)
    assert out.tolist() == rows.tolist()


def test_as_stored_changes_nothing() -> None:
    stored = np.zeros((2, 3), np.float32)
    assert AS_STORED.apply(stored) is stored
