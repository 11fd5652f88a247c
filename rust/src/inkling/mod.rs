//! The Inkling family: long edge rescaled, 40-pixel patches with one extra column, bfloat16.

mod parameters;
pub mod patchify;
#[cfg(feature = "python")]
pub mod python;

use std::sync::Arc;

use crate::common::dims::scaled_dims;
use crate::common::memory::Buffer;
use crate::common::resize::{self, Arithmetic, Filter, Size};
use crate::common::transforms::normalize::Normaliser;
use crate::error::{CoreError, Result};
use crate::family::{ImageProcessorSpec, parse_parameters};
use crate::processor::{ImageProcessor, Plan, StageTimes};
use crate::stages::{Resizing, resize_and_finish};
use crate::tensor::{Tensor, TensorSpec, Transport};

pub use parameters::InklingParameters;
#[cfg(feature = "python")]
pub use python::register;

/// The family, as the registry knows it.
pub struct InklingSpec;

impl ImageProcessorSpec for InklingSpec {
    fn name(&self) -> &'static str {
        "inkling"
    }

    fn configure(&self, parameters_json: &str) -> Result<Arc<dyn ImageProcessor>> {
        let parameters = parse_parameters("inkling", parameters_json)?;
        Ok(Arc::new(InklingProcessor::new(parameters)?))
    }

    #[cfg(feature = "python")]
    fn register(&self, module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        register(module)
    }
}

/// Inkling with its parameters fixed.
pub struct InklingProcessor {
    parameters: InklingParameters,
    normaliser: Normaliser,
}

impl InklingProcessor {
    /// Builds a processor.
    ///
    /// # Errors
    /// As [`InklingParameters::validate`].
    pub fn new(parameters: InklingParameters) -> Result<Self> {
        parameters.validate()?;
        Self::with_any_rescale(parameters)
    }

    /// Builds a processor for any pair of `rescale_frac` and `rescale_cap`, as the published functions take it.
    ///
    /// # Errors
    /// As [`InklingParameters::validate_patches`].
    pub fn with_any_rescale(parameters: InklingParameters) -> Result<Self> {
        parameters.validate_patches()?;
        let normaliser = Normaliser::new(parameters.mean, parameters.std);
        Ok(Self { parameters, normaliser })
    }
}

impl ImageProcessor for InklingProcessor {
    fn family(&self) -> &'static str {
        "inkling"
    }

    fn parameters_json(&self) -> String {
        serde_json::to_string(&self.parameters).unwrap_or_default()
    }

    fn plan(&self, width: usize, height: usize, transport: Transport) -> Result<Plan> {
        let (width, height) =
            scaled_dims(width, height, self.parameters.rescale_frac, self.parameters.rescale_cap);
        let (rows, columns) = patchify::grid(width, height, self.parameters.patch_size);
        let num_patches = rows.saturating_mul(columns);
        let tensors = match transport {
            Transport::Uint8 => {
                vec![TensorSpec { name: "pixels", dtype: transport.dtype(), shape: vec![height, width, 3] }]
            }
            _ => self.finished(width, height, transport)?,
        };
        Ok(Plan { width, height, grid: [1, rows, columns], num_tokens: num_patches, tensors })
    }

    fn process(
        &self,
        rgb: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        times: &mut StageTimes,
    ) -> Result<Vec<Tensor>> {
        let plan = self.plan(width, height, transport)?;
        let Some(spec) = plan.tensors.into_iter().next() else {
            return Err(CoreError::Internal("inkling planned no tensor".to_owned()));
        };
        let mut data = Buffer::take(spec.size_bytes())?;
        let resizing = Resizing {
            size: Size { in_width: width, in_height: height, out_width: plan.width, out_height: plan.height },
            filter: Filter::Lanczos,
            arithmetic: Arithmetic::Pillow(resize::pass_order()),
        };
        resize_and_finish(self, rgb, &resizing, transport, times, data.bytes_mut())?;
        Ok(vec![Tensor { spec, data }])
    }

    fn finished(&self, width: usize, height: usize, transport: Transport) -> Result<Vec<TensorSpec>> {
        if transport == Transport::Uint8 {
            return Err(CoreError::argument("uint8 pixels are not patches; choose bf16 or float32"));
        }
        let patch_px = self.parameters.patch_size;
        let (rows, columns) = patchify::grid(width, height, patch_px);
        let shape = vec![rows.saturating_mul(columns), patch_px, patch_px, 3];
        Ok(vec![TensorSpec { name: "patches", dtype: transport.dtype(), shape }])
    }

    fn finish(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        out: &mut [u8],
    ) -> Result<()> {
        let all_bytes = out.len();
        self.finish_band(pixels, width, height, transport, all_bytes, out)
    }

    fn band_rows(&self) -> Option<usize> {
        Some(self.parameters.patch_size)
    }

    fn finish_band(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        all_bytes: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let image = patchify::Pixels { bytes: pixels, width, height };
        patchify::patchify(&self.normaliser, image, self.parameters.patch_size, transport, all_bytes, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_bad_parameters() {
        let processor = InklingSpec.configure("{}").expect("defaults are valid");
        let plan = processor.plan(512, 512, Transport::Bf16).expect("plan");
        assert_eq!((plan.width, plan.height, plan.grid, plan.num_tokens), (1024, 1024, [1, 26, 26], 676));
        for bad in [
            r#"{"patch_size":0}"#,
            r#"{"rescale_frac":-1.0}"#,
            r#"{"rescale_frac":null}"#,
            r#"{"rescale_cap":0}"#,
            r#"{"surprise":1}"#,
            "[]",
        ] {
            assert!(matches!(InklingSpec.configure(bad), Err(CoreError::InvalidArgument(_))), "{bad}");
        }
    }
}
