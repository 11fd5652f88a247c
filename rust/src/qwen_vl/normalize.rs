//! Bytes to normalised values, in the rounding of each backend.
//!
//! Both backends work in single precision but round at different steps, so that half of all byte values come
//! out a last bit apart. A byte has 256 values, so a table of 256 by 3 holds all that can ever come out; it is
//! computed step by step as the backend does and is what every kernel is held to.

use super::arithmetic::Arithmetic;
use super::layout::CHANNELS;
use super::parameters::{Backend, QwenVlParameters};
use crate::common::bf16::f32_to_bf16;

/// Normalised value of every byte in every channel.
#[derive(Debug)]
pub struct Normaliser {
    /// In single precision.
    pub float: [[f32; 256]; CHANNELS],
    /// Rounded to bfloat16 bits.
    pub bf16: [[u16; 256]; CHANNELS],
    /// The same without a table.
    pub arithmetic: Arithmetic,
}

impl Normaliser {
    /// Tables for these parameters.
    pub fn new(parameters: &QwenVlParameters) -> Self {
        let float: [[f32; 256]; CHANNELS] = std::array::from_fn(|channel| {
            std::array::from_fn(|byte| match parameters.backend {
                Backend::Torchvision => torchvision(parameters, channel, byte as f32),
                Backend::Pil => pil(parameters, channel, byte as f64),
            })
        });
        let bf16 = float.map(|channel| channel.map(f32_to_bf16));
        let arithmetic = Arithmetic::proved(parameters, &float, &bf16);
        Self { float, bf16, arithmetic }
    }
}

/// What a value is stored as.
pub trait Element: Copy + Send + Sync + bytemuck::Pod {
    /// Whether it is the bits of a bfloat16, not an `f32`.
    const IS_BF16: bool;
    /// The values of every byte.
    fn table(normaliser: &Normaliser) -> &[[Self; 256]; CHANNELS];
}

impl Element for f32 {
    const IS_BF16: bool = false;
    fn table(normaliser: &Normaliser) -> &[[Self; 256]; CHANNELS] {
        &normaliser.float
    }
}

impl Element for u16 {
    const IS_BF16: bool = true;
    fn table(normaliser: &Normaliser) -> &[[Self; 256]; CHANNELS] {
        &normaliser.bf16
    }
}

// The factor is folded into mean and deviation, as tensors in single precision times a scalar in it.
fn torchvision(parameters: &QwenVlParameters, channel: usize, byte: f32) -> f32 {
    let (mean, std) = (parameters.image_mean[channel] as f32, parameters.image_std[channel] as f32);
    match (parameters.do_rescale, parameters.do_normalize) {
        (true, true) => {
            let inverse = (1.0 / parameters.rescale_factor) as f32;
            (byte - mean * inverse) / (std * inverse)
        }
        (false, true) => (byte - mean) / std,
        (true, false) => byte * parameters.rescale_factor as f32,
        (false, false) => byte,
    }
}

// The factor is applied in double precision and rounded, then the mean and the deviation in single.
fn pil(parameters: &QwenVlParameters, channel: usize, byte: f64) -> f32 {
    let scaled = if parameters.do_rescale { byte * parameters.rescale_factor } else { byte } as f32;
    if !parameters.do_normalize {
        return scaled;
    }
    (scaled - parameters.image_mean[channel] as f32) / parameters.image_std[channel] as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backends_round_apart_in_half_of_the_values() {
        let of = |backend| Normaliser::new(&QwenVlParameters { backend, ..QwenVlParameters::default() });
        let (torchvision, pil) = (of(Backend::Torchvision), of(Backend::Pil));
        let apart = torchvision
            .float
            .iter()
            .flatten()
            .zip(pil.float.iter().flatten())
            .filter(|(left, right)| left != right)
            .count();
        assert!(apart > 300, "{apart}");
        assert_eq!(torchvision.bf16, pil.bf16);
    }

    #[test]
    fn switches_leave_the_bytes_as_they_are() {
        for backend in [Backend::Torchvision, Backend::Pil] {
            let bare = QwenVlParameters {
                backend,
                do_rescale: false,
                do_normalize: false,
                ..QwenVlParameters::default()
            };
            let float = Normaliser::new(&bare).float;
            assert!((0..256).all(|byte| float[1][byte] == byte as f32));
        }
    }
}
