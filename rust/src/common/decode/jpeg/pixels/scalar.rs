//! Both kernels in plain Rust: what the others are held to.

use super::kernels::{Difference, Factors, GROUP_SAMPLES};
use super::steps::*;
use crate::common::decode::jpeg::entropy::{GROUP_BLOCKS, Group};

/// See [`super::kernels::transform`].
pub fn transform(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    let mut is_within = true;
    for lane in 0..GROUP_BLOCKS {
        let block: [[i16; 8]; 8] = std::array::from_fn(|row| {
            std::array::from_fn(|column| {
                group[row * GROUP_SAMPLES + lane * 8 + column].wrapping_mul(factors[row * 8 + column])
            })
        });
        is_within &= block[0].iter().all(|value| (-FIRST_ROW_REACH..FIRST_ROW_REACH).contains(value));
        let columns = transposed(&block).map(|column| pass(column, COLUMN_SHIFT));
        for (row, values) in transposed(&columns).into_iter().enumerate() {
            let samples = pass(values, ROW_SHIFT).map(|value| (value.clamp(-128, 127) + 128) as u8);
            out[row * stride + lane * 8..][..8].copy_from_slice(&samples);
        }
    }
    is_within
}

fn transposed(block: &[[i16; 8]; 8]) -> [[i16; 8]; 8] {
    std::array::from_fn(|row| std::array::from_fn(|column| block[column][row]))
}

fn sum((first, second): (i16, i16), by: Pair) -> i32 {
    (i32::from(first) * i32::from(by.0)).wrapping_add(i32::from(second) * i32::from(by.1))
}

// The transform of Loeffler, Ligtenberg and Moschytz (1989) as libjpeg rounds it, in 16 and 32 bits that wrap.
fn pass(input: [i16; 8], shift: u32) -> [i16; 8] {
    let [in0, in1, in2, in3, in4, in5, in6, in7] = input;
    let scaled = |value: i16| i32::from(value) << FRACTION_BITS;
    let (outer, inner) = (sum((in2, in6), EVEN_OUTER), sum((in2, in6), EVEN_INNER));
    let (plus, minus) = (scaled(in0.wrapping_add(in4)), scaled(in0.wrapping_sub(in4)));
    let even = [
        plus.wrapping_add(outer),
        minus.wrapping_add(inner),
        minus.wrapping_sub(inner),
        plus.wrapping_sub(outer),
    ];
    let both = (in7.wrapping_add(in3), in5.wrapping_add(in1));
    let (seven_three, five_one) = (sum(both, ODD_SEVEN_THREE), sum(both, ODD_FIVE_ONE));
    let odd = [
        sum((in7, in1), ODD_ZERO_SEVEN).wrapping_add(five_one),
        sum((in5, in3), ODD_ONE_SIX).wrapping_add(seven_three),
        sum((in5, in3), ODD_TWO_FIVE).wrapping_add(five_one),
        sum((in7, in1), ODD_THREE_FOUR).wrapping_add(seven_three),
    ];
    std::array::from_fn(|at| {
        let value =
            if at < 4 { even[at].wrapping_add(odd[at]) } else { even[7 - at].wrapping_sub(odd[7 - at]) };
        let rounded = value.wrapping_add(1 << (shift - 1)) >> shift;
        rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16
    })
}

/// See [`super::kernels::rgb_row`].
pub fn rgb_row(subsampling: Subsampling, luminance: &[u8], [blue, red]: [Difference<'_>; 2], rgb: &mut [u8]) {
    for (at, (rgb, &luminance)) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(luminance).enumerate() {
        *rgb = to_rgb(luminance, difference(subsampling, blue, at), difference(subsampling, red, at));
    }
}

// The colour difference of pixel `at`, from -128 on.
fn difference(subsampling: Subsampling, rows: Difference<'_>, at: usize) -> i16 {
    let by = match subsampling {
        Subsampling::None => return i16::from(rows.near[at + 1]) - 128,
        Subsampling::Across => Upsampling::ACROSS,
        Subsampling::Both => Upsampling::BOTH,
    };
    let sum = |at: usize| match subsampling {
        Subsampling::Both => 3 * i16::from(rows.near[at]) + i16::from(rows.far[at]),
        _ => i16::from(rows.near[at]),
    };
    let middle = at / 2 + 1;
    let (neighbour, rounding) =
        if at.is_multiple_of(2) { (middle - 1, by.left) } else { (middle + 1, by.right) };
    (3 * sum(middle) + sum(neighbour) + rounding) >> by.shift
}

fn to_rgb(luminance: u8, blue: i16, red: i16) -> [u8; 3] {
    let part = |by: i32| ((by + HALF) >> 15) as i16;
    let of_green = part(sum((blue, red), GREEN)) - red;
    let of_red = part(i32::from(red) * i32::from(RED)) + red;
    let of_blue = part(i32::from(blue) * i32::from(BLUE)) + 2 * blue;
    [of_red, of_green, of_blue].map(|part| (i16::from(luminance) + part).clamp(0, 255) as u8)
}
