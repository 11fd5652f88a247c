"""Read-only arrays become tensors of the same memory, bit for bit, without a warning."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra: sglang)")

from sglang_mm_ray.sglang.tensors import as_tensor, for_consumer, shared_view  # noqa: E402


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


def test_temporal_copies_are_expanded_and_not_stored() -> None:
    patches = as_tensor(np.arange(2 * 3 * 3 * 3, dtype=np.float32).reshape(2, 3, 3, 3), "float32")
    expanded = for_consumer(patches, "inkling", 2)
    assert expanded.shape == (2, 2, 3, 3, 3)
    assert torch.equal(expanded[:, 0], patches)
    assert torch.equal(expanded[:, 1], patches)
    assert expanded.untyped_storage().nbytes() == patches.untyped_storage().nbytes()


def test_a_writable_array_is_returned_as_it_is() -> None:
    array = np.zeros(4, np.uint8)
    assert shared_view(array) is array


def test_qwen_rows_hold_each_channels_copies_side_by_side() -> None:
    stored = np.arange(2 * 3 * 1 * 2 * 2, dtype=np.float32).reshape(2, 3, 1, 2, 2)
    rows = for_consumer(as_tensor(stored, "float32"), "qwen_vl", 2)
    assert rows.numpy().tolist() == np.repeat(stored, 2, axis=2).reshape(2, -1).tolist()
    assert for_consumer(rows, "qwen_vl", 2) is rows, "what is expanded already stays"
