//! The limits of a batch.

use pyo3::prelude::*;

use crate::common::limits::Limits;

/// Limits that hold before memory is taken.
#[pyclass(name = "Limits", frozen, from_py_object, module = "sglang_mm_ray._core")]
#[derive(Clone, Copy)]
pub struct PyLimits(Limits);

impl PyLimits {
    /// The limits as the core takes them.
    pub fn inner(self) -> Limits {
        self.0
    }
}

#[pymethods]
impl PyLimits {
    #[new]
    #[pyo3(signature = (*, max_input_bytes = None, max_pixels = None, max_patches = None))]
    fn new(max_input_bytes: Option<u64>, max_pixels: Option<u64>, max_patches: Option<u64>) -> Self {
        let default = Limits::default();
        Self(Limits {
            max_input_bytes: max_input_bytes.unwrap_or(default.max_input_bytes),
            max_pixels: max_pixels.unwrap_or(default.max_pixels),
            max_patches: max_patches.unwrap_or(default.max_patches),
        })
    }

    #[getter]
    fn max_input_bytes(&self) -> u64 {
        self.0.max_input_bytes
    }

    #[getter]
    fn max_pixels(&self) -> u64 {
        self.0.max_pixels
    }

    #[getter]
    fn max_patches(&self) -> u64 {
        self.0.max_patches
    }
}
