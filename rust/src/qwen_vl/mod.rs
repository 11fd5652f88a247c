//! The Qwen-VL family: Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5, which differ in parameters only.
//!
//! The parameters are those of a checkpoint's `preprocessor_config.json`. The tensor is `pixel_values`, and
//! `grid` is the row of `image_grid_thw`. A still picture fills a temporal patch with copies of itself, so by
//! default they are left out: `[patches, 3, 1, patch, patch]`, for the consumer to repeat along the third axis
//! and flatten. With `expand_temporal` it is the published `[patches, 3 * temporal * patch * patch]`.

pub mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod checkpoint;
pub mod layout;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lines;
pub mod mrope;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod normalize;
mod parameters;
pub mod patchify;
#[cfg(feature = "python")]
pub mod python;
pub mod smart_resize;

use std::sync::Arc;

use crate::common::memory::Buffer;
use crate::common::resize::{self, Arithmetic, Size};
use crate::error::{CoreError, Result};
use crate::family::ImageProcessorSpec;
use crate::processor::{ImageProcessor, Plan, StageTimes};
use crate::stages::{Resizing, resize_and_finish};
use crate::tensor::{Tensor, TensorSpec, Transport};
use layout::{CHANNELS, Layout};
use normalize::Normaliser;

pub use parameters::{Backend, PixelBudget, QwenVlParameters};

/// The family, as the registry knows it.
pub struct QwenVlSpec;

impl ImageProcessorSpec for QwenVlSpec {
    fn name(&self) -> &'static str {
        "qwen_vl"
    }

    fn configure(&self, parameters_json: &str) -> Result<Arc<dyn ImageProcessor>> {
        Ok(Arc::new(QwenVlProcessor::new(checkpoint::parse(parameters_json)?)?))
    }

    #[cfg(feature = "python")]
    fn register(&self, module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        python::register(module)
    }
}

/// Qwen-VL with its parameters fixed.
pub struct QwenVlProcessor {
    parameters: QwenVlParameters,
    normaliser: Normaliser,
}

impl QwenVlProcessor {
    /// Builds a processor.
    ///
    /// # Errors
    /// As [`QwenVlParameters::validate`].
    pub fn new(parameters: QwenVlParameters) -> Result<Self> {
        parameters.validate()?;
        let normaliser = Normaliser::new(&parameters);
        Ok(Self { parameters, normaliser })
    }

    /// The parameters.
    pub fn parameters(&self) -> &QwenVlParameters {
        &self.parameters
    }

    /// `(height, width)` of a picture after resizing.
    ///
    /// # Errors
    /// As [`smart_resize::smart_resize`]; without `do_resize`, where the sides are no whole tokens.
    pub fn resized(&self, height: usize, width: usize) -> Result<(usize, usize)> {
        let QwenVlParameters { do_resize, size, .. } = self.parameters;
        let factor_px = self.parameters.factor_px();
        if do_resize {
            let (fewest, most) = (size.shortest_edge, size.longest_edge);
            return smart_resize::smart_resize(height, width, factor_px, fewest, most);
        }
        let whole = |side: usize| side > 0 && side.is_multiple_of(factor_px);
        if whole(height) && whole(width) {
            return Ok((height, width));
        }
        Err(CoreError::argument(format!(
            "do_resize is false, but {width} x {height} pixels are no whole number of {factor_px} x \
             {factor_px} tokens; set it to true"
        )))
    }

    /// Turns `rgb` into the planned tensor, in memory that the caller holds.
    ///
    /// # Errors
    /// As [`ImageProcessor::process`].
    pub fn process_into(
        &self,
        rgb: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        times: &mut StageTimes,
        out: &mut [u8],
    ) -> Result<()> {
        let (out_height, out_width) = self.resized(height, width)?;
        let resizing = Resizing {
            size: Size { in_width: width, in_height: height, out_width, out_height },
            filter: self.parameters.resample,
            arithmetic: self.arithmetic(),
        };
        resize_and_finish(self, rgb, &resizing, transport, times, out)
    }

    fn arithmetic(&self) -> Arithmetic {
        match self.parameters.backend {
            Backend::Torchvision => Arithmetic::Aten,
            Backend::Pil => Arithmetic::Pillow(resize::pass_order()),
        }
    }

    fn layout(&self, height: usize, width: usize) -> Layout {
        let QwenVlParameters { patch_size, merge_size, .. } = self.parameters;
        Layout { width, height, patch_px: patch_size, merge: merge_size, copies: self.parameters.copies() }
    }

    fn patches(&self, layout: Layout, transport: Transport) -> TensorSpec {
        let num_patches = layout.rows() * layout.columns();
        let shape = if self.parameters.expand_temporal {
            vec![num_patches, layout.patch_values()]
        } else {
            vec![num_patches, CHANNELS, 1, layout.patch_px, layout.patch_px]
        };
        TensorSpec { name: "pixel_values", dtype: transport.dtype(), shape }
    }
}

impl ImageProcessor for QwenVlProcessor {
    fn family(&self) -> &'static str {
        "qwen_vl"
    }

    fn parameters_json(&self) -> String {
        serde_json::to_string(&self.parameters).unwrap_or_default()
    }

    fn plan(&self, width: usize, height: usize, transport: Transport) -> Result<Plan> {
        let (height, width) = self.resized(height, width)?;
        let layout = self.layout(height, width);
        let (rows, columns) = (layout.rows(), layout.columns());
        let tensor = match transport {
            Transport::Uint8 => {
                let shape = vec![height, width, CHANNELS];
                TensorSpec { name: "pixels", dtype: transport.dtype(), shape }
            }
            _ => self.patches(layout, transport),
        };
        let num_tokens = rows * columns / (layout.merge * layout.merge);
        Ok(Plan { width, height, grid: [1, rows, columns], num_tokens, tensors: vec![tensor] })
    }

    fn process(
        &self,
        rgb: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        times: &mut StageTimes,
    ) -> Result<Vec<Tensor>> {
        let Some(spec) = self.plan(width, height, transport)?.tensors.into_iter().next() else {
            return Err(CoreError::Internal("qwen_vl planned no tensor".to_owned()));
        };
        let mut data = Buffer::take(spec.size_bytes())?;
        self.process_into(rgb, width, height, transport, times, data.bytes_mut())?;
        Ok(vec![Tensor { spec, data }])
    }

    fn finished(&self, width: usize, height: usize, transport: Transport) -> Result<Vec<TensorSpec>> {
        if transport == Transport::Uint8 {
            return Err(CoreError::argument("uint8 pixels are not patches; choose bf16 or float32"));
        }
        let layout = self.layout(height, width);
        layout.check()?;
        Ok(vec![self.patches(layout, transport)])
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
        Some(self.parameters.factor_px())
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
        let layout = self.layout(height, width);
        patchify::patchify(&self.normaliser, pixels, layout, transport, all_bytes, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(json: &str) -> Arc<dyn ImageProcessor> {
        QwenVlSpec.configure(json).expect(json)
    }

    #[test]
    fn plans_name_the_tensor_and_count_tokens_not_patches() {
        let plan = processor(r#"{"max_pixels":12845056}"#).plan(1920, 1080, Transport::Bf16).expect("plan");
        assert_eq!((plan.width, plan.height, plan.grid, plan.num_tokens), (1932, 1092, [1, 78, 138], 2691));
        assert_eq!(
            (plan.tensors[0].name, &plan.tensors[0].shape[..]),
            ("pixel_values", &[10764, 3, 1, 14, 14][..])
        );
        let expanded = processor(r#"{"max_pixels":12845056,"expand_temporal":true}"#);
        let plan = expanded.plan(1920, 1080, Transport::Float32).expect("plan");
        assert_eq!(plan.tensors[0].shape, [10764, 1176]);
        let plan = expanded.plan(1920, 1080, Transport::Uint8).expect("plan");
        assert_eq!((plan.tensors[0].name, &plan.tensors[0].shape[..]), ("pixels", &[1092, 1932, 3][..]));
    }

    #[test]
    fn without_resizing_the_sides_must_be_whole_tokens() {
        let processor = processor(r#"{"do_resize":false}"#);
        assert!(processor.plan(56, 28, Transport::Bf16).is_ok());
        for (width, height) in [(57, 28), (56, 14), (0, 28)] {
            assert!(processor.plan(width, height, Transport::Bf16).is_err(), "{width} x {height}");
        }
    }

    #[test]
    fn patches_of_a_token_are_neighbours_and_copies_are_alike() {
        // 8 x 4 pixels of value 10 * row + column, patches of 2, tokens of 2 by 2 patches.
        let json = r#"{"patch_size":2,"do_resize":false,"do_rescale":false,"do_normalize":false,
            "expand_temporal":true}"#;
        let pixels: Vec<u8> =
            (0..4).flat_map(|row| (0..8).flat_map(move |column| [row * 10 + column; 3])).collect();
        let mut times = StageTimes::default();
        let tensors = processor(json).process(&pixels, 8, 4, Transport::Float32, &mut times).expect("tensor");
        let values: &[f32] = bytemuck::cast_slice(tensors[0].data.bytes());
        assert_eq!(tensors[0].spec.shape, [8, 24]);
        let firsts: Vec<f32> = values.iter().step_by(24).copied().collect();
        assert_eq!(firsts, [0.0, 2.0, 20.0, 22.0, 4.0, 6.0, 24.0, 26.0]);
        let patch = [0.0, 1.0, 10.0, 11.0].repeat(6);
        assert_eq!(values[..24], patch);
    }
}
