//! `_core.inkling`: the published functions, with the published arguments and results.

use pyo3::prelude::*;

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let _ = module;
    Ok(())
}
