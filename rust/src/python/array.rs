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
    // Never read, but the arrays' memory is its.
    _buffer: Buffer,
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
    mut buffer: Buffer,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let values: &mut [T] = bytemuck::try_cast_slice_mut(buffer.bytes_mut())
        .map_err(|error| to_python(CoreError::Internal(format!("tensor memory: {error}"))))?;
    if shape.iter().product::<usize>() != values.len() {
        let reason = format!("{} values have not the shape {shape:?}", values.len());
        return Err(to_python(CoreError::Internal(reason)));
    }
    let first = values.as_mut_ptr();
    let owner = Bound::new(py, PooledMemory { _buffer: buffer })?;
    // SAFETY: `first` points to as many values as the shape has, aligned and initialised, in memory that belongs to
    // `owner`, which never moves or frees it while it lives, and the array holds `owner`. The pointer was taken to write,
    // and no Rust reference to the buffer is made after it, so Python may write.
    Ok(unsafe {
        let view = ArrayViewD::from_shape_ptr(IxDyn(shape), first.cast_const());
        PyArrayDyn::borrow_from_array(&view, owner.into_any())
    }
    .into_any())
}
