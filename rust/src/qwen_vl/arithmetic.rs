//! The table of normalised values as arithmetic that vectors can do, proved equal for every byte.
//!
//! A byte in a channel has 256 values, so whether some steps give the table bit for bit can be tried out when a
//! processor is built. Steps that do are used by the kernels; where none do, the table itself is.

use super::layout::CHANNELS;
use super::parameters::{Backend, QwenVlParameters};

/// Constants of each channel.
pub type PerChannel = [f32; CHANNELS];

/// Rescale, subtract and divide, each rounded as the reference rounds it, but without a division.
///
/// `x = fma(byte, high, byte * low)` is the byte times a factor of more digits than one `f32` has;
/// `n = x - mean`; `fma(n, inverse_high, n * inverse_low)` is the quotient, by a reciprocal of as many digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Upper part of the factor.
    pub high: PerChannel,
    /// What `high` lacks.
    pub low: PerChannel,
    /// Subtracted.
    pub mean: PerChannel,
    /// Upper part of the reciprocal of the deviation.
    pub inverse_high: PerChannel,
    /// What `inverse_high` lacks.
    pub inverse_low: PerChannel,
}

/// `fma(byte, factor, offset)`: seldom exact in single precision, mostly so once rounded to bfloat16.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Factor of the byte.
    pub factor: PerChannel,
    /// Value of byte 0.
    pub offset: PerChannel,
}

/// The ways that hold for a processor's parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Arithmetic {
    /// Gives the table of single precision.
    pub steps: Option<Steps>,
    /// Gives the table of bfloat16 when rounded by [`nearest_bf16`].
    pub bf16_line: Option<Line>,
    /// Does so too; only looked for where no line does.
    pub bf16_steps: Option<Steps>,
}

/// The upper half of a value and half a unit: the nearest bfloat16, but where two are as near.
pub fn nearest_bf16(value: f32) -> u16 {
    (value.to_bits().wrapping_add(0x8000) >> 16) as u16
}

impl Arithmetic {
    /// What of it gives the tables in every value.
    pub fn proved(
        parameters: &QwenVlParameters,
        float: &[[f32; 256]; CHANNELS],
        bf16: &[[u16; 256]; CHANNELS],
    ) -> Self {
        let steps = Steps::of(parameters);
        let line = Line::of(parameters);
        let every = |holds: &dyn Fn(usize, usize) -> bool| {
            (0..CHANNELS).all(|channel| (0..256).all(|byte| holds(channel, byte)))
        };
        let steps_hold = every(&|c, byte| steps.value(c, byte as f32).to_bits() == float[c][byte].to_bits());
        let line_holds = every(&|c, byte| nearest_bf16(line.value(c, byte as f32)) == bf16[c][byte]);
        let bf16_steps_hold =
            !line_holds && every(&|c, byte| nearest_bf16(steps.value(c, byte as f32)) == bf16[c][byte]);
        Self {
            steps: steps_hold.then_some(steps),
            bf16_line: line_holds.then_some(line),
            bf16_steps: bf16_steps_hold.then_some(steps),
        }
    }
}

impl Steps {
    fn of(parameters: &QwenVlParameters) -> Self {
        let QwenVlParameters { backend, do_rescale, do_normalize, rescale_factor, .. } = *parameters;
        let folded = do_rescale && do_normalize && backend == Backend::Torchvision;
        let factor = if do_rescale && !folded { rescale_factor } else { 1.0 };
        let high = factor as f32;
        // Torchvision's factor has no more digits than one `f32`.
        let low = if backend == Backend::Pil { (factor - f64::from(high)) as f32 } else { 0.0 };
        let unfold = if folded { (1.0 / rescale_factor) as f32 } else { 1.0 };
        let (mean, std) = if do_normalize {
            (
                parameters.image_mean.map(|mean| mean as f32 * unfold),
                parameters.image_std.map(|std| std as f32 * unfold),
            )
        } else {
            ([0.0; CHANNELS], [1.0; CHANNELS])
        };
        let inverse = std.map(|std| 1.0 / f64::from(std));
        let inverse_high = inverse.map(|inverse| inverse as f32);
        let inverse_low =
            std::array::from_fn(|channel| (inverse[channel] - f64::from(inverse_high[channel])) as f32);
        Self { high: [high; CHANNELS], low: [low; CHANNELS], mean, inverse_high, inverse_low }
    }

    fn value(&self, channel: usize, byte: f32) -> f32 {
        let scaled = byte.mul_add(self.high[channel], byte * self.low[channel]);
        let centred = scaled - self.mean[channel];
        centred.mul_add(self.inverse_high[channel], centred * self.inverse_low[channel])
    }
}

impl Line {
    fn of(parameters: &QwenVlParameters) -> Self {
        let QwenVlParameters { do_rescale, do_normalize, rescale_factor, .. } = *parameters;
        let scale = if do_rescale { rescale_factor } else { 1.0 };
        let (mean, std) = if do_normalize {
            (parameters.image_mean, parameters.image_std)
        } else {
            ([0.0; CHANNELS], [1.0; CHANNELS])
        };
        Self {
            factor: std.map(|std| (scale / std) as f32),
            offset: std::array::from_fn(|channel| (-mean[channel] / std[channel]) as f32),
        }
    }

    fn value(&self, channel: usize, byte: f32) -> f32 {
        byte.mul_add(self.factor[channel], self.offset[channel])
    }
}

#[cfg(test)]
mod tests {
    use super::super::normalize::Normaliser;
    use super::*;

    fn of(parameters: &QwenVlParameters) -> Arithmetic {
        Normaliser::new(parameters).arithmetic
    }

    #[test]
    fn the_models_need_no_table() {
        for backend in [Backend::Torchvision, Backend::Pil] {
            let clip = QwenVlParameters { backend, ..QwenVlParameters::default() };
            let half = QwenVlParameters { image_mean: [0.5; 3], image_std: [0.5; 3], ..clip.clone() };
            for parameters in [clip, half] {
                let arithmetic = of(&parameters);
                assert!(arithmetic.steps.is_some(), "{parameters:?}");
                assert!(arithmetic.bf16_line.is_some(), "{parameters:?}");
            }
        }
    }

    #[test]
    fn what_does_not_hold_is_not_offered() {
        // Infinite once scaled, and infinity less infinity is no number.
        let rescale_factor = 1e38;
        let huge = QwenVlParameters { rescale_factor, do_normalize: false, ..QwenVlParameters::default() };
        assert_eq!(of(&huge).steps, None);
    }
}
