//! What a byte becomes: rescaling and normalising, step by step as the reference does it.

use serde::Serialize;

use crate::common::bf16::{bf16_to_f32, f32_to_bf16};
use crate::common::normalise::{CHANNELS, Normaliser, PerChannel, Steps, Table};

/// Whose arithmetic is reproduced. The two differ in the weights of the resize and in the rounding of the
/// normalisation, so the backend is part of what is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// transformers' torchvision backend.
    Torchvision,
    /// transformers' PIL backend, and whatever resizes with Pillow.
    Pil,
}

/// In which precision, and in which order, a byte is rescaled and normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// transformers' torchvision backend: the factor is folded into mean and deviation in single precision.
    Folded,
    /// transformers' PIL backend: times the factor in double precision, rounded to single; then in single.
    Split,
    /// `byte * factor` with a factor in single precision, then mean and deviation in it: Inkling.
    SingleFactor,
    /// `ToTensor` and `Normalize` of torchvision: `byte / 255` in single precision, then mean and deviation in it.
    ToTensor,
    /// numpy arrays of single precision that are changed in place by doubles: `byte / 255`, then less the mean, then
    /// times `1 / std`, each in double precision and rounded to single. Kimi.
    DoubleInPlace,
    /// Every step rounded to bfloat16, the factor in single precision: Llama 4.
    Bfloat16,
}

/// A normalisation: what every byte of every channel becomes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arithmetic {
    /// The order of the steps.
    pub order: Order,
    /// The factor of the bytes, if they are rescaled. `ToTensor` and `DoubleInPlace` divide by its reciprocal.
    pub rescale: Option<f64>,
    /// Mean and standard deviation of each channel, if it is normalised by them.
    pub normalise: Option<([f64; CHANNELS], [f64; CHANNELS])>,
}

impl Arithmetic {
    /// As transformers' backend does it.
    pub fn of_backend(
        backend: Backend,
        rescale: Option<f64>,
        normalise: Option<([f64; CHANNELS], [f64; CHANNELS])>,
    ) -> Self {
        let order = match backend {
            Backend::Torchvision => Order::Folded,
            Backend::Pil => Order::Split,
        };
        Self { order, rescale, normalise }
    }

    /// The tables, and the vector arithmetic that gives them.
    pub fn normaliser(&self) -> Normaliser {
        let table: Table<f32> = std::array::from_fn(|channel| {
            std::array::from_fn(|byte| self.normalised(channel, self.rescaled(byte as f64)))
        });
        Normaliser::new(table, &self.steps())
    }

    /// What a value that is `scaled` already becomes, by channel: padding that models put in before they normalise.
    pub fn of_scaled(&self, scaled: f32) -> PerChannel {
        std::array::from_fn(|channel| self.normalised(channel, scaled))
    }

    fn rescaled(&self, byte: f64) -> f32 {
        let Some(factor) = self.rescale else { return byte as f32 };
        match self.order {
            // Folded into mean and deviation.
            Order::Folded if self.normalise.is_some() => byte as f32,
            Order::Folded | Order::SingleFactor => byte as f32 * factor as f32,
            Order::Split => (byte * factor) as f32,
            Order::ToTensor => byte as f32 / (1.0 / factor) as f32,
            Order::DoubleInPlace => (byte / (1.0 / factor)) as f32,
            Order::Bfloat16 => bf16(byte as f32 * factor as f32),
        }
    }

    fn normalised(&self, channel: usize, value: f32) -> f32 {
        let Some((mean, std)) = self.normalise else { return value };
        let (mean, std) = (mean[channel], std[channel]);
        match self.order {
            Order::Folded => {
                let inverse = self.rescale.map_or(1.0, |factor| (1.0 / factor) as f32);
                (value - mean as f32 * inverse) / (std as f32 * inverse)
            }
            Order::Split | Order::SingleFactor | Order::ToTensor => (value - mean as f32) / std as f32,
            Order::DoubleInPlace => {
                let centred = (f64::from(value) - mean) as f32;
                (f64::from(centred) * (1.0 / std)) as f32
            }
            Order::Bfloat16 => bf16(bf16(value - bf16(mean as f32)) / bf16(std as f32)),
        }
    }

    // Steps that most likely give the table; it is tried out.
    fn steps(&self) -> Steps {
        let (mean, std) = self.normalise.unwrap_or(([0.0; CHANNELS], [1.0; CHANNELS]));
        let (mean, std) = (mean.map(|mean| mean as f32), std.map(|std| std as f32));
        let factor = self.rescale.unwrap_or(1.0);
        match self.order {
            Order::Folded if self.normalise.is_some() => {
                let inverse = self.rescale.map_or(1.0, |factor| (1.0 / factor) as f32);
                Steps::new(1.0, mean.map(|mean| mean * inverse), std.map(|std| std * inverse))
            }
            Order::Folded | Order::SingleFactor => Steps::new(f64::from(factor as f32), mean, std),
            _ => Steps::new(factor, mean, std),
        }
    }
}

fn bf16(value: f32) -> f32 {
    bf16_to_f32(f32_to_bf16(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: ([f64; 3], [f64; 3]) =
        ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]);
    const HALF: ([f64; 3], [f64; 3]) = ([0.5; 3], [0.5; 3]);
    const ORDERS: [Order; 6] = [
        Order::Folded,
        Order::Split,
        Order::SingleFactor,
        Order::ToTensor,
        Order::DoubleInPlace,
        Order::Bfloat16,
    ];

    fn of(order: Order, rescale: Option<f64>, normalise: Option<([f64; 3], [f64; 3])>) -> Arithmetic {
        Arithmetic { order, rescale, normalise }
    }

    #[test]
    fn the_models_need_no_table() {
        for order in ORDERS {
            for normalise in [Some(CLIP), Some(HALF), None] {
                let normaliser = of(order, Some(1.0 / 255.0), normalise).normaliser();
                let is_bf16 = order == Order::Bfloat16;
                // Doubles in place keep digits of the mean that vectors lack; models use one half.
                let is_double = order == Order::DoubleInPlace && normalise == Some(CLIP);
                assert_eq!(normaliser.steps.is_some(), !is_bf16 && !is_double, "{order:?} {normalise:?}");
                if !is_bf16 {
                    assert!(normaliser.bf16_line.is_some(), "{order:?} {normalise:?}");
                }
            }
        }
    }

    #[test]
    fn the_backends_round_apart_in_half_of_the_values() {
        let [folded, split] =
            [Order::Folded, Order::Split].map(|order| of(order, Some(1.0 / 255.0), Some(CLIP)).normaliser());
        let values = folded.float.iter().flatten().zip(split.float.iter().flatten());
        let apart = values.filter(|(left, right)| left != right).count();
        assert!(apart > 300, "{apart}");
        assert_eq!(folded.bf16, split.bf16);
    }

    #[test]
    fn without_steps_the_bytes_stay_as_they_are() {
        for order in ORDERS {
            let float = of(order, None, None).normaliser().float;
            assert!((0..256).all(|byte| float[1][byte] == byte as f32), "{order:?}");
        }
    }

    #[test]
    fn what_is_scaled_already_is_only_normalised() {
        let inkling = of(Order::SingleFactor, Some(1.0 / 255.0), Some(HALF));
        assert_eq!(inkling.of_scaled(0.75), [0.5; 3]);
        assert_eq!(of(Order::Split, Some(1.0 / 255.0), None).of_scaled(-3.0), [-3.0; 3]);
    }
}
