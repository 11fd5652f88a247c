//! Handing pooled memory to numpy without a copy.
#![allow(unsafe_code)]

use numpy::ndarray::{ArrayViewD, IxDyn};
use numpy::{Element, PyArrayDyn};
use pyo3::prelude::*;

use super::errors::to_python;
use crate::common::memory::Buffer;
use crate::error::CoreError;
use crate::tensor::{DType, Tensor};

/// Keeps a pooled buffer alive for the arrays that look into it; the buffer returns to the pool with the last.
#[pyclass(frozen, module = "sglang_mm_ray._core")]
pub struct PooledMemory {
    buffer: Buffer,
}

/// A tensor as a numpy array; bfloat16 becomes its bits in `uint16`.
pub fn tensor_array<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let Tensor { spec, data } = tensor;
    match spec.dtype {
        DType::U8 => array::<u8>(py, data, &spec.shape),
        DType::Bf16 => array::<u16>(py, data, &spec.shape),
        DType::F16 => half_array(py, data, &spec.shape),
        DType::F32 => array::<f32>(py, data, &spec.shape),
        DType::I32 => array::<i32>(py, data, &spec.shape),
        DType::I64 => array::<i64>(py, data, &spec.shape),
    }
}

// numpy has the type, but Rust has not: its bits, looked at as what they are.
fn half_array<'py>(py: Python<'py>, data: Buffer, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    array::<u16>(py, data, shape)?.call_method1("view", ("float16",))
}

/// A buffer as a flat numpy array of `T`.
pub fn flat_array<T: Element + bytemuck::Pod>(py: Python<'_>, buffer: Buffer) -> PyResult<Bound<'_, PyAny>> {
    let len = buffer.len() / size_of::<T>();
    array::<T>(py, buffer, &[len])
}

fn array<'py, T: Element + bytemuck::Pod>(
    py: Python<'py>,
    buffer: Buffer,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let owner = Bound::new(py, PooledMemory { buffer })?;
    let values: &[T] = bytemuck::try_cast_slice(owner.get().buffer.bytes())
        .map_err(|error| to_python(CoreError::Internal(format!("tensor memory: {error}"))))?;
    let view = ArrayViewD::from_shape(IxDyn(shape), values)
        .map_err(|error| to_python(CoreError::Internal(format!("tensor shape: {error}"))))?;
    // SAFETY: the view's memory belongs to `owner`, which never moves or frees it while it lives, and the
    // array holds `owner`. No Rust reference to the buffer outlives this call, so Python may write to it.
    Ok(unsafe { PyArrayDyn::borrow_from_array(&view, owner.clone().into_any()) }.into_any())
}
