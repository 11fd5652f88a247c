//! The one place where Rust work is entered from Python.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use super::errors::to_python;
use crate::error::{CoreError, Result};

/// Runs `work` without the GIL; errors become exceptions and a panic becomes `InternalError`.
///
/// # Errors
/// The Python exception of whatever `work` returned.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(CoreError::from_panic(&*panic)))
    })
    .map_err(to_python)
}
