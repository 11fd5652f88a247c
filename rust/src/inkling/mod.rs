//! The Inkling family: long edge rescaled, 40-pixel patches with one extra column, bfloat16.

pub mod patchify;
#[cfg(feature = "python")]
pub mod python;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::common::dims::scaled_dims;
use crate::common::memory::Buffer;
use crate::common::resize::{self, Filter, Size};
use crate::error::{CoreError, Result};
use crate::registry::{ImageProcessor, ImageProcessorSpec, Plan, parse_parameters};
use crate::tensor::{Tensor, TensorSpec, Transport};

/// The family's parameters, with the model's defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InklingParameters {
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Factor of the long edge; `None` keeps the size.
    pub rescale_frac: Option<f64>,
    /// Bound on growth of the long edge, in pixels; needs `rescale_frac > 1`.
    pub rescale_cap: Option<i64>,
    /// Mean of each channel, in `0..=1`.
    pub mean: [f32; 3],
    /// Standard deviation of each channel.
    pub std: [f32; 3],
}

impl Default for InklingParameters {
    fn default() -> Self {
        Self {
            patch_size: 40,
            rescale_frac: Some(2.0),
            rescale_cap: Some(2048),
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
        }
    }
}

impl InklingParameters {
    /// Refuses what the model forbids.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the parameter and the way out.
    pub fn validate(&self) -> Result<()> {
        if self.patch_size == 0 || self.patch_size > 4096 {
            return Err(CoreError::argument(format!("patch_size is {}; choose 1 to 4096", self.patch_size)));
        }
        if let Some(frac) = self.rescale_frac
            && !(frac.is_finite() && frac > 0.0)
        {
            return Err(CoreError::argument(format!(
                "rescale_frac is {frac}; it must be finite and positive"
            )));
        }
        if let Some(cap) = self.rescale_cap {
            if cap <= 0 {
                return Err(CoreError::argument(format!("rescale_cap is {cap}; it must be positive")));
            }
            if self.rescale_frac.is_none_or(|frac| frac <= 1.0) {
                return Err(CoreError::argument("rescale_cap limits growth, so it needs rescale_frac > 1"));
            }
        }
        if self.std.iter().any(|&std| std == 0.0 || !std.is_finite())
            || self.mean.iter().any(|m| !m.is_finite())
        {
            return Err(CoreError::argument("mean and std must be finite and std not 0"));
        }
        Ok(())
    }
}

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
}

/// Inkling with its parameters fixed.
pub struct InklingProcessor {
    parameters: InklingParameters,
    normaliser: patchify::Normaliser,
}

impl InklingProcessor {
    /// Builds a processor.
    ///
    /// # Errors
    /// As [`InklingParameters::validate`].
    pub fn new(parameters: InklingParameters) -> Result<Self> {
        parameters.validate()?;
        let normaliser = patchify::Normaliser::new(parameters.mean, parameters.std);
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
        let patch_px = self.parameters.patch_size;
        let (rows, columns) = patchify::grid(width, height, patch_px);
        let num_patches = rows.saturating_mul(columns);
        let (name, shape) = match transport {
            Transport::Uint8 => ("pixels", vec![height, width, 3]),
            _ => ("patches", vec![num_patches, patch_px, patch_px, 3]),
        };
        let tensors = vec![TensorSpec { name, dtype: transport.dtype(), shape }];
        Ok(Plan { width, height, grid: [1, rows, columns], num_tokens: num_patches, tensors })
    }

    fn process(&self, rgb: &[u8], width: usize, height: usize, transport: Transport) -> Result<Vec<Tensor>> {
        if width == 0 || height == 0 || rgb.len() != width * height * 3 {
            return Err(CoreError::argument(format!(
                "{} bytes are not {width} x {height} RGB pixels",
                rgb.len()
            )));
        }
        let plan = self.plan(width, height, transport)?;
        let Some(spec) = plan.tensors.into_iter().next() else {
            return Err(CoreError::Internal("inkling planned no tensor".to_owned()));
        };
        let same_size = (plan.width, plan.height) == (width, height);
        let mut data = Buffer::take(spec.size_bytes())?;
        let size =
            Size { in_width: width, in_height: height, out_width: plan.width, out_height: plan.height };
        let resize =
            |out: &mut [u8]| resize::resize_rgb(rgb, size, Filter::Lanczos, resize::pass_order(), out);
        match (transport, same_size) {
            (Transport::Uint8, true) => data.bytes_mut().copy_from_slice(rgb),
            (Transport::Uint8, false) => resize(data.bytes_mut())?,
            (_, true) => self.finish(rgb, width, height, transport, data.bytes_mut())?,
            (_, false) => {
                let mut pixels = Buffer::take(plan.width * plan.height * 3)?;
                resize(pixels.bytes_mut())?;
                self.finish(pixels.bytes(), plan.width, plan.height, transport, data.bytes_mut())?;
            }
        }
        Ok(vec![Tensor { spec, data }])
    }

    fn finish(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        out: &mut [u8],
    ) -> Result<()> {
        patchify::patchify(
            &self.normaliser,
            pixels,
            width,
            height,
            self.parameters.patch_size,
            transport,
            out,
        )
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
