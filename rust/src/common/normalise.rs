//! The value of every byte in every channel, and arithmetic that vectors can do in place of looking it up.
//!
//! Models round at different steps, so the table is made step by step as the model's own code does, and is what every
//! kernel is held to. A byte has 256 values, so whether some vector arithmetic gives the table bit for bit is tried out
//! when a normaliser is built. Arithmetic that does is used by the kernels; where none does, the table itself is.

use std::array::from_fn;

use super::bf16::f32_to_bf16;
use super::f16::f32_to_f16;

/// Channels of a picture.
pub const CHANNELS: usize = 3;
/// Constants of each channel.
pub type PerChannel = [f32; CHANNELS];
/// The value of every byte in every channel.
pub type Table<T> = [[T; 256]; CHANNELS];

/// Lanes of the longest vector.
const LANES: usize = 16;

/// A constant of each channel, laid out as kernels load it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constant {
    /// By channel.
    pub channel: PerChannel,
    /// For values of all channels side by side: entry `first` has that channel in lane 0, and the next in lane 1.
    pub side_by_side: [[f32; LANES]; CHANNELS],
    /// Likewise for every second of such values.
    pub every_second: [[f32; LANES]; CHANNELS],
}

impl Constant {
    fn new(channel: PerChannel) -> Self {
        let lanes = |step| from_fn(|first| from_fn(|lane| channel[(first + lane * step) % CHANNELS]));
        Self { channel, side_by_side: lanes(1), every_second: lanes(2) }
    }
}

/// Rescale, subtract and divide, each rounded, but without a division.
///
/// `x = fma(byte, high, byte * low)` is the byte times a factor of more digits than one `f32` has;
/// `n = x - mean`; `fma(n, inverse_high, n * inverse_low)` is the quotient, by a reciprocal of as many digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Upper part of the factor.
    pub high: Constant,
    /// What `high` lacks.
    pub low: Constant,
    /// Subtracted.
    pub mean: Constant,
    /// Upper part of the reciprocal of the deviation.
    pub inverse_high: Constant,
    /// What `inverse_high` lacks.
    pub inverse_low: Constant,
}

impl Steps {
    /// The steps for a factor in double precision, and a mean and a deviation for each channel.
    pub fn new(factor: f64, mean: PerChannel, std: PerChannel) -> Self {
        let parts = |value: f64| (value as f32, (value - f64::from(value as f32)) as f32);
        let (high, low) = parts(factor);
        let inverse = std.map(|std| parts(1.0 / f64::from(std)));
        Self {
            high: Constant::new([high; CHANNELS]),
            low: Constant::new([low; CHANNELS]),
            mean: Constant::new(mean),
            inverse_high: Constant::new(inverse.map(|(high, _)| high)),
            inverse_low: Constant::new(inverse.map(|(_, low)| low)),
        }
    }

    fn value(&self, channel: usize, byte: f32) -> f32 {
        let of = |constant: &Constant| constant.channel[channel];
        let scaled = byte.mul_add(of(&self.high), byte * of(&self.low));
        let centred = scaled - of(&self.mean);
        centred.mul_add(of(&self.inverse_high), centred * of(&self.inverse_low))
    }
}

/// `fma(byte, factor, offset)`: seldom exact in single precision, mostly so once rounded to bfloat16.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Factor of the byte.
    pub factor: Constant,
    /// Value of byte 0.
    pub offset: Constant,
}

impl Line {
    // The straightforward constants miss a rounding boundary for some tables; a neighbour of them then mostly does not.
    fn proved(float: &Table<f32>, bf16: &Table<u16>) -> Option<Self> {
        let (mut factor, mut offset) = ([0.0; CHANNELS], [0.0; CHANNELS]);
        for channel in 0..CHANNELS {
            let [first, .., last] = float[channel];
            let factors = neighbours(((f64::from(last) - f64::from(first)) / 255.0) as f32);
            let offsets = neighbours(first);
            let mut pairs = factors.iter().flat_map(|&factor| offsets.map(|offset| (factor, offset)));
            (factor[channel], offset[channel]) = pairs.find(|&(factor, offset)| {
                (0_u8..=255)
                    .zip(&bf16[channel])
                    .all(|(byte, &bits)| nearest_bf16(f32::from(byte).mul_add(factor, offset)) == bits)
            })?;
        }
        Some(Self { factor: Constant::new(factor), offset: Constant::new(offset) })
    }
}

fn neighbours(value: f32) -> [f32; 5] {
    let (up, down) = (value.next_up(), value.next_down());
    [value, up, down, up.next_up(), down.next_down()]
}

/// The upper half of a value and half a unit: the nearest bfloat16, but where two are as near.
pub fn nearest_bf16(value: f32) -> u16 {
    (value.to_bits().wrapping_add(0x8000) >> 16) as u16
}

/// What a normalisation makes of bytes: tables, and the arithmetic that was proved to give them.
#[derive(Debug)]
pub struct Normaliser {
    /// In single precision.
    pub float: Table<f32>,
    /// Rounded to bfloat16 bits.
    pub bf16: Table<u16>,
    /// Rounded to half precision.
    pub f16: Table<F16>,
    /// Gives the table of single precision.
    pub steps: Option<Steps>,
    /// Gives the table of bfloat16 when rounded by [`nearest_bf16`].
    pub bf16_line: Option<Line>,
    /// Does so too; only looked for where no line does.
    pub bf16_steps: Option<Steps>,
}

impl Normaliser {
    /// For a table, and steps that may give it.
    pub fn new(float: Table<f32>, steps: &Steps) -> Self {
        let bf16 = float.map(|channel| channel.map(f32_to_bf16));
        let f16 = float.map(|channel| channel.map(F16::from_f32));
        let every = |holds: &dyn Fn(usize, usize, f32) -> bool| {
            (0..CHANNELS).all(|c| (0..256).all(|byte| holds(c, byte, steps.value(c, byte as f32))))
        };
        let steps_hold = every(&|c, byte, value| value.to_bits() == float[c][byte].to_bits());
        let bf16_line = Line::proved(&float, &bf16);
        let bf16_steps_hold =
            bf16_line.is_none() && every(&|c, byte, value| nearest_bf16(value) == bf16[c][byte]);
        Self {
            float,
            bf16,
            f16,
            steps: steps_hold.then_some(*steps),
            bf16_line,
            bf16_steps: bf16_steps_hold.then_some(*steps),
        }
    }
}

/// The bits of an IEEE half; signed, since those of a bfloat16 are not.
pub type F16 = i16;

/// What values are stored as: `f32`, `u16` for the bits of a bfloat16, or [`F16`].
pub trait Element: Copy + Send + Sync + bytemuck::Pod + sealed::Sealed {
    /// Whether it is the bits of a bfloat16.
    const IS_BF16: bool = false;
    /// Whether vector kernels make it.
    const HAS_KERNELS: bool = true;
    /// The values of every byte.
    fn table(normaliser: &Normaliser) -> &Table<Self>;
    /// Rounds a value to it.
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    fn table(normaliser: &Normaliser) -> &Table<Self> {
        &normaliser.float
    }
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Element for u16 {
    const IS_BF16: bool = true;
    fn table(normaliser: &Normaliser) -> &Table<Self> {
        &normaliser.bf16
    }
    fn from_f32(value: f32) -> Self {
        f32_to_bf16(value)
    }
}

impl Element for F16 {
    const HAS_KERNELS: bool = false;
    fn table(normaliser: &Normaliser) -> &Table<Self> {
        &normaliser.f16
    }
    fn from_f32(value: f32) -> Self {
        f32_to_f16(value).cast_signed()
    }
}

// Kernels rely on the size that goes with `IS_BF16`, so nobody else may say it.
mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u16 {}
    impl Sealed for super::F16 {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(value: impl Fn(usize, f32) -> f32) -> Table<f32> {
        from_fn(|channel| from_fn(|byte| value(channel, byte as f32)))
    }

    #[test]
    fn proved_arithmetic_gives_the_table_and_what_does_not_hold_is_not_offered() {
        let (mean, std) =
            ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);
        let scale = 1.0_f32 / 255.0;
        let clip = table(|channel, byte| (byte * scale - mean[channel]) / std[channel]);
        let normaliser = Normaliser::new(clip, &Steps::new(f64::from(scale), mean, std));
        assert!(normaliser.steps.is_some() && normaliser.bf16_line.is_some());
        // Infinite once scaled, and infinity less infinity is no number.
        let huge = Normaliser::new(table(|_, byte| byte * 1e38), &Steps::new(1e38, [0.0; 3], [1.0; 3]));
        assert!(huge.steps.is_none() && huge.bf16_line.is_none() && huge.bf16_steps.is_none());
        let crooked = table(|_, byte| if byte == 77.0 { -3.0 } else { byte });
        let crooked = Normaliser::new(crooked, &Steps::new(1.0, [0.0; 3], [1.0; 3]));
        assert!(crooked.steps.is_none() && crooked.bf16_line.is_none() && crooked.bf16_steps.is_none());
    }
}
