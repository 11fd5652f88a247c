//! The numbers of the arithmetic, which all instruction sets share.

/// How many pixels share a sample of a colour difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subsampling {
    /// None: each has its own.
    None,
    /// Two side by side.
    Across,
    /// Two by two.
    Both,
}

/// One way of upsampling: `(3 * sum + neighbour + rounding - CENTRE) >> shift` is the difference itself, from -128 on.
#[derive(Debug, Clone, Copy)]
pub struct Upsampling {
    /// Bits that the weights of both directions add.
    pub shift: u32,
    /// For the left one of two pixels: its rounding, and the half of the range off.
    pub left: i16,
    /// The same for the right one. libjpeg rounds halves up and down in turn.
    pub right: i16,
}

impl Upsampling {
    /// Across alone: the sums are the samples.
    pub const ACROSS: Self = Self { shift: 2, left: 1 - (128 << 2), right: 2 - (128 << 2) };
    /// Both ways: the sums are three of the near row and one of the far.
    pub const BOTH: Self = Self { shift: 4, left: 8 - (128 << 4), right: 7 - (128 << 4) };
}

/// A factor of the transform with 13 bits of fraction.
const fn fixed(factor: f64) -> i16 {
    (factor * (1 << FRACTION_BITS) as f64 + 0.5) as i16
}

/// Bits of fraction of the transform's factors.
pub const FRACTION_BITS: u32 = 13;
/// Bits to drop after the pass over columns: it keeps two of the fraction.
pub const COLUMN_SHIFT: u32 = FRACTION_BITS - 2;
/// Bits to drop after the pass over rows: those two, and the scale of two passes.
pub const ROW_SHIFT: u32 = FRACTION_BITS + 2 + 3;

const F0298: i16 = fixed(0.298_631_336);
const F0390: i16 = fixed(0.390_180_644);
const F0541: i16 = fixed(0.541_196_100);
const F0765: i16 = fixed(0.765_366_865);
const F0899: i16 = fixed(0.899_976_223);
const F1175: i16 = fixed(1.175_875_602);
const F1501: i16 = fixed(1.501_321_110);
const F1847: i16 = fixed(1.847_759_065);
const F1961: i16 = fixed(1.961_570_560);
const F2053: i16 = fixed(2.053_119_869);
const F2562: i16 = fixed(2.562_915_447);
const F3072: i16 = fixed(3.072_711_026);

/// Factors of two values whose products are added.
pub type Pair = (i16, i16);

/// Of inputs 2 and 6, for outputs 0, 3, 4 and 7.
pub const EVEN_OUTER: Pair = (F0541 + F0765, F0541);
/// Of inputs 2 and 6, for outputs 1, 2, 5 and 6.
pub const EVEN_INNER: Pair = (F0541, F0541 - F1847);
/// Of inputs 7 + 3 and 5 + 1, for the odd parts with inputs 7 and 3.
pub const ODD_SEVEN_THREE: Pair = (F1175 - F1961, F1175);
/// Of inputs 7 + 3 and 5 + 1, for the odd parts with inputs 5 and 1.
pub const ODD_FIVE_ONE: Pair = (F1175, F1175 - F0390);
/// Of inputs 7 and 1, for outputs 3 and 4.
pub const ODD_THREE_FOUR: Pair = (F0298 - F0899, -F0899);
/// Of inputs 5 and 3, for outputs 2 and 5.
pub const ODD_TWO_FIVE: Pair = (F2053 - F2562, -F2562);
/// Of inputs 5 and 3, for outputs 1 and 6.
pub const ODD_ONE_SIX: Pair = (-F2562, F3072 - F2562);
/// Of inputs 7 and 1, for outputs 0 and 7.
pub const ODD_ZERO_SEVEN: Pair = (-F0899, F1501 - F0899);

/// First rows whose values are from `-FIRST_ROW_REACH` on and below it become four times as much, whatever stands below
/// them. libjpeg-turbo's vector code takes a shorter way where nothing does, which wraps.
pub const FIRST_ROW_REACH: i16 = 1 << 13;

/// Red is luminance + the red difference + `(RED * difference + HALF) >> 15`: 1.402 in all, from 0 on of 16 bits.
pub const RED: i16 = 13_173;
/// Blue is luminance + twice the blue difference + `(BLUE * difference + HALF) >> 15`: 1.772 in all.
pub const BLUE: i16 = -7471;
/// Green is luminance - the red difference + `(blue and red difference by GREEN + HALF) >> 15`: -0.34414 and -0.71414.
pub const GREEN: Pair = (-11_277, 9367);
/// What rounds a number that loses 15 bits.
pub const HALF: i32 = 1 << 14;
