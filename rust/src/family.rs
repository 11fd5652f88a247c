//! A model family: a name, and parameters that arrive as JSON and become a typed spec of its own.

use std::sync::Arc;

use crate::common::limits::Limits;
use crate::error::{CoreError, Result};
use crate::pipeline::{self, Processed};
use crate::processor::ImageProcessor;
use crate::tensor::Transport;

/// A model family: knows its parameters and builds processors from them.
pub trait ImageProcessorSpec: Send + Sync {
    /// Name in the registry, and of the Python submodule if there is one.
    fn name(&self) -> &'static str;

    /// Builds a processor from the family's parameters as a JSON object (`"{}"` for all defaults).
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] for an unknown or impossible parameter.
    fn configure(&self, parameters_json: &str) -> Result<Arc<dyn ImageProcessor>>;

    /// Preprocesses encoded images side by side on [`crate::common::pool`], each with a result of its own.
    ///
    /// # Errors
    /// The outer error is that of [`Self::configure`].
    fn preprocess_batch(
        &self,
        datas: &[&[u8]],
        parameters_json: &str,
        transport: Transport,
        limits: &Limits,
    ) -> Result<Vec<Result<Processed>>> {
        let processor = self.configure(parameters_json)?;
        Ok(pipeline::preprocess_batch(&*processor, datas, &[], transport, limits))
    }

    /// Adds functions of the family's own to its Python module, `_core.<name>`.
    ///
    /// # Errors
    /// What Python raises.
    #[cfg(feature = "python")]
    fn register(&self, module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        let _ = module;
        Ok(())
    }
}

/// Parses a family's parameters; anything but a JSON object is refused, as are unknown fields where the
/// family's type denies them.
///
/// # Errors
/// [`CoreError::InvalidArgument`] that names the family and the field.
pub fn parse_parameters<T: serde::de::DeserializeOwned>(family: &str, parameters_json: &str) -> Result<T> {
    // Through a map, since serde would also fill a struct from an array.
    serde_json::from_str::<serde_json::Map<_, _>>(parameters_json)
        .and_then(|fields| serde_json::from_value(fields.into()))
        .map_err(|error| CoreError::argument(format!("{family} parameters: {error}")))
}
