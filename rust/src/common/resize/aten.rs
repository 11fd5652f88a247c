//! The antialiased 8-bit resize of torchvision (ATen), bit for bit.
//!
//! It differs from Pillow's in two things: weights have 16 bits with a precision chosen for each axis, and the
//! horizontal pass is always first. A weight of `p` fraction bits is Pillow's weight of 22 with `22 - p` zeros
//! below, and `(sum + 2^(p-1)) >> p` is then Pillow's `(sum + 2^21) >> 22`; so these weights run on Pillow's
//! kernels, and no instruction set needs a kernel of its own.
//!
//! torchvision 0.29 gives the same values on its AVX2 and AVX-512 paths, which are the ones reproduced. Without
//! AVX2 its bicubic and Lanczos results are the same for outputs of at least 2 pixels in width, and its bilinear
//! ones are not: they go through floats there. (An output of 1 by 1 pixel fails an assertion in ATen.)

use super::Filter;
use super::coefficients::{Coefficients, PRECISION_BITS, exact_weights};

/// Weights that take `in_size` samples to `out_size`, in Pillow's fixed point.
pub fn coefficients(in_size: usize, out_size: usize, filter: Filter) -> Coefficients {
    let exact = exact_weights(in_size, out_size, filter);
    let heaviest = exact.weights.iter().copied().fold(0.0, f64::max);
    let precision_bits = precision_bits(heaviest);
    let scale = f64::from(1_u32 << precision_bits);
    let weights = exact
        .weights
        .iter()
        .map(|&weight| {
            let scaled = weight * scale;
            let rounded = if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 } as i32;
            i32::from(rounded as i16) << (PRECISION_BITS - precision_bits)
        })
        .collect();
    Coefficients { bounds: exact.bounds, weights, taps_stride: exact.taps_stride }
}

// The most fraction bits, up to 22, with which the heaviest weight still fits into 16 bits and a sign.
fn precision_bits(heaviest: f64) -> u32 {
    (0..PRECISION_BITS)
        .find(|bits| (0.5 + heaviest * f64::from(1_u32 << (bits + 1))) as i32 >= 1 << 15)
        .unwrap_or(PRECISION_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_leaves_the_heaviest_weight_sixteen_bits() {
        // From ATen's rule: the first precision whose successor would overflow 15 bits.
        for (heaviest, bits) in
            [(1.0, 14), (0.999, 15), (1.2, 14), (0.5, 15), (0.25, 16), (1e-3, 22), (0.0, 22)]
        {
            assert_eq!(precision_bits(heaviest), bits, "{heaviest}");
        }
    }

    #[test]
    fn weights_are_multiples_of_the_unit_of_their_axis() {
        for (in_size, out_size) in [(1920, 1932), (2160, 1092), (7, 500), (4000, 3), (1, 28)] {
            let weights = coefficients(in_size, out_size, Filter::Bicubic).weights;
            let zeros = weights.iter().map(|weight| weight.trailing_zeros()).min().expect("weights");
            let heaviest = weights.iter().max().expect("weights") >> zeros.min(PRECISION_BITS - 14);
            assert!(heaviest < 1 << 15, "{in_size} to {out_size}: {heaviest}");
        }
    }
}
