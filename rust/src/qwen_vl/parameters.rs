//! What a Qwen-VL image processor can be told, and what it is told when nobody says anything.

use serde::Serialize;

use crate::common::resize::Filter;
use crate::error::{CoreError, Result};

/// Whose arithmetic is reproduced. The two differ in the weights of the resize and in the rounding of the
/// normalisation, so the backend is part of what is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// transformers' torchvision backend: `Qwen2VLImageProcessor`, `Qwen2VLImageProcessorFast`.
    Torchvision,
    /// transformers' PIL backend: `Qwen2VLImageProcessorPil`.
    Pil,
}

/// Pixel budget of the resized picture, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PixelBudget {
    /// Most pixels.
    pub longest_edge: u64,
    /// Fewest pixels.
    pub shortest_edge: u64,
}

/// The family's parameters. [`Default`] is the class default of transformers 5.24.0.
///
/// Serialised, it is a `preprocessor_config.json` that [`super::checkpoint::parse`] reads back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QwenVlParameters {
    /// Whose arithmetic.
    pub backend: Backend,
    /// Whether to resize at all; if not, the picture must already be whole merged patches.
    pub do_resize: bool,
    /// Whether to multiply by `rescale_factor`.
    pub do_rescale: bool,
    /// Whether to subtract the mean and divide by the standard deviation.
    pub do_normalize: bool,
    /// Whether patches hold `temporal_patch_size` copies of a picture, or one that the consumer expands.
    pub expand_temporal: bool,
    /// Mean of each channel.
    pub image_mean: [f64; 3],
    /// Standard deviation of each channel.
    pub image_std: [f64; 3],
    /// Patches that merge into one token, along each side.
    pub merge_size: usize,
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Filter of the resize; serialised as Pillow's number for it.
    #[serde(serialize_with = "filter_number")]
    pub resample: Filter,
    /// Factor of the bytes.
    pub rescale_factor: f64,
    /// Pixel budget.
    pub size: PixelBudget,
    /// Copies of a still picture along time.
    pub temporal_patch_size: usize,
}

impl Default for QwenVlParameters {
    fn default() -> Self {
        Self {
            backend: Backend::Torchvision,
            do_resize: true,
            do_rescale: true,
            do_normalize: true,
            expand_temporal: false,
            image_mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            image_std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
            merge_size: 2,
            patch_size: 14,
            resample: Filter::Bicubic,
            rescale_factor: 1.0 / 255.0,
            size: PixelBudget { longest_edge: 28 * 28 * 1280, shortest_edge: 56 * 56 },
            temporal_patch_size: 2,
        }
    }
}

impl QwenVlParameters {
    /// Sides of the picture are multiples of this.
    pub fn factor_px(&self) -> usize {
        self.patch_size * self.merge_size
    }

    /// How often a patch holds the picture.
    pub fn copies(&self) -> usize {
        if self.expand_temporal { self.temporal_patch_size } else { 1 }
    }

    /// Refuses what no processor could be built from.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the parameter and the way out.
    pub fn validate(&self) -> Result<()> {
        for (name, value, most) in [
            ("patch_size", self.patch_size, 1024),
            ("merge_size", self.merge_size, 64),
            ("temporal_patch_size", self.temporal_patch_size, 64),
        ] {
            if value == 0 || value > most {
                return Err(refusal(format!("{name} is {value}; choose 1 to {most}")));
            }
        }
        if self.size.longest_edge == 0 {
            return Err(refusal("size needs longest_edge above 0, in pixels"));
        }
        let usable = |value: f64| value.is_finite() && (value as f32).is_finite();
        if !usable(self.rescale_factor) || self.rescale_factor as f32 == 0.0 {
            return Err(refusal("rescale_factor must be finite and not 0"));
        }
        if !self.image_mean.into_iter().chain(self.image_std).all(usable) {
            return Err(refusal("image_mean and image_std must be finite"));
        }
        if self.do_normalize && self.image_std.iter().any(|&std| std as f32 == 0.0) {
            return Err(refusal("image_std must not be 0"));
        }
        if self.backend == Backend::Torchvision && matches!(self.resample, Filter::Box | Filter::Hamming) {
            return Err(refusal("torchvision has no box and no hamming filter; choose backend \"pil\""));
        }
        Ok(())
    }
}

/// Pillow's numbers of the filters that the core has.
pub const FILTER_NUMBERS: [(u64, Filter); 5] = [
    (1, Filter::Lanczos),
    (2, Filter::Bilinear),
    (3, Filter::Bicubic),
    (4, Filter::Box),
    (5, Filter::Hamming),
];

fn filter_number<S: serde::Serializer>(
    filter: &Filter,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let number = FILTER_NUMBERS.iter().find(|(_, known)| known == filter).map_or(0, |&(number, _)| number);
    serializer.serialize_u64(number)
}

pub(super) fn refusal(reason: impl std::fmt::Display) -> CoreError {
    CoreError::argument(format!("qwen_vl parameters: {reason}"))
}
