//! Model families, by name.
//!
//! A family is one folder with an [`ImageProcessorSpec`] and one line in [`default_registry`]. Its parameters
//! arrive as JSON and become a typed spec of its own; what it makes is a list of named tensors.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::common::limits::Limits;
use crate::error::{CoreError, Result};
use crate::pipeline::{self, Processed, StageTimes};
use crate::tensor::{Tensor, TensorSpec, Transport};

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

/// What an image of one size becomes, known from its header alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Width after resizing, in pixels.
    pub width: usize,
    /// Height after resizing, in pixels.
    pub height: usize,
    /// Patch grid: temporal, rows, columns.
    pub grid: [usize; 3],
    /// Placeholder tokens that stand for the image in the prompt.
    pub num_tokens: usize,
    /// The tensors that [`ImageProcessor::process`] makes.
    pub tensors: Vec<TensorSpec>,
}

/// A family with its parameters fixed. Pure: equal input gives equal output on every machine.
pub trait ImageProcessor: Send + Sync {
    /// Name of the family.
    fn family(&self) -> &'static str;

    /// All parameters, defaults filled in, as canonical JSON: equal text means equal results.
    fn parameters_json(&self) -> String;

    /// Sizes of what an image of `width` by `height` pixels becomes.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the model forbids the size.
    fn plan(&self, width: usize, height: usize, transport: Transport) -> Result<Plan>;

    /// Turns `rgb` (`height * width * 3` bytes, HWC) into the planned tensors, and adds the seconds this took
    /// to `times.resize_s` and `times.patchify_s`.
    ///
    /// # Errors
    /// As [`Self::plan`].
    fn process(
        &self,
        rgb: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        times: &mut StageTimes,
    ) -> Result<Vec<Tensor>>;

    /// The tensors that [`Self::finish`] makes of pixels that are already resized to `width` by `height`, one
    /// after the other.
    ///
    /// # Errors
    /// As [`Self::finish`].
    fn finished(&self, width: usize, height: usize, transport: Transport) -> Result<Vec<TensorSpec>>;

    /// Late normalising: writes the patches of already resized pixels (the `uint8` transport) into `out`, bit
    /// for bit as [`Self::process`] would have.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the sizes do not match or `transport` is `Uint8`.
    fn finish(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        out: &mut [u8],
    ) -> Result<()>;

    /// How many rows of pixels make a band, if the family can work by bands: the pixels of [`Self::process`] are the
    /// image resized to the planned size, or as it is where that is its own; they become one tensor by
    /// [`Self::finish`]; and `finish` of an image is `finish` of each band of rows, one after the other.
    ///
    /// Then decoding, resizing and finishing take turns in the cache. Without, as by default, each is a pass of its
    /// own over the whole image.
    fn band_rows(&self) -> Option<usize> {
        None
    }

    /// [`Self::finish`] of one band (of `height` rows) of an image that becomes `all_bytes` bytes, whose size may decide
    /// whether its output goes through the cache.
    ///
    /// # Errors
    /// As [`Self::finish`].
    fn finish_band(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        all_bytes: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let _ = all_bytes;
        self.finish(pixels, width, height, transport, out)
    }
}

/// The families by name.
#[derive(Default)]
pub struct ProcessorRegistry {
    families: BTreeMap<&'static str, Box<dyn ImageProcessorSpec>>,
}

impl ProcessorRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a family; a later one of the same name replaces the earlier.
    pub fn register(&mut self, family: Box<dyn ImageProcessorSpec>) {
        self.families.insert(family.name(), family);
    }

    /// Looks a family up.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that lists the known names.
    pub fn get(&self, name: &str) -> Result<&dyn ImageProcessorSpec> {
        self.families.get(name).map(|family| &**family).ok_or_else(|| {
            CoreError::argument(format!("no processor {name:?}; known: {}", self.names().join(", ")))
        })
    }

    /// All families, in the order of their names.
    pub fn families(&self) -> impl Iterator<Item = &dyn ImageProcessorSpec> {
        self.families.values().map(|family| &**family)
    }

    /// Names of all families, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        self.families.keys().copied().collect()
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

/// The families that this build ships.
pub fn default_registry() -> &'static ProcessorRegistry {
    static REGISTRY: LazyLock<ProcessorRegistry> = LazyLock::new(|| {
        let mut registry = ProcessorRegistry::new();
        registry.register(Box::new(crate::inkling::InklingSpec));
        registry.register(Box::new(crate::qwen_vl::QwenVlSpec));
        registry
    });
    &REGISTRY
}
