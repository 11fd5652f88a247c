//! The reference: plain safe Rust, one value at a time. Every other kernel is held to it.

use std::ops::Range;

use super::coefficients::{Coefficients, PRECISION_BITS};
use super::{Arithmetic, Filter, Size};

/// Resizes interleaved channels; lengths have been checked.
pub fn resize(
    source: &[u8],
    channels: usize,
    size: Size,
    filter: Filter,
    arithmetic: Arithmetic,
    out: &mut [u8],
) {
    match channels {
        1 => resize_channels::<1>(source, size, filter, arithmetic, out),
        4 => resize_channels::<4>(source, size, filter, arithmetic, out),
        _ => resize_channels::<3>(source, size, filter, arithmetic, out),
    }
}

fn resize_channels<const CHANNELS: usize>(
    source: &[u8],
    size: Size,
    filter: Filter,
    arithmetic: Arithmetic,
    out: &mut [u8],
) {
    let Size { in_width, in_height, out_width, out_height } = size;
    let weights = |from, to| (from != to).then(|| arithmetic.coefficients(from, to, filter));
    let (horizontal, vertical) = (weights(in_width, out_width), weights(in_height, out_height));
    match (horizontal, vertical) {
        (None, None) => out.copy_from_slice(source),
        (Some(weights), None) => horizontal_pass::<CHANNELS>(source, in_width, &weights, out),
        (None, Some(weights)) => vertical_pass(source, in_width * CHANNELS, 0, &weights, out),
        (Some(horizontal), Some(vertical)) if arithmetic.vertical_first(&size) => {
            let mut middle = vec![0; in_width * out_height * CHANNELS];
            vertical_pass(source, in_width * CHANNELS, 0, &vertical, &mut middle);
            horizontal_pass::<CHANNELS>(&middle, in_width, &horizontal, out);
        }
        (Some(horizontal), Some(vertical)) => {
            let rows = vertical.used();
            let used = &source[rows.start * in_width * CHANNELS..rows.end * in_width * CHANNELS];
            let mut middle = vec![0; out_width * rows.len() * CHANNELS];
            horizontal_pass::<CHANNELS>(used, in_width, &horizontal, &mut middle);
            vertical_pass(&middle, out_width * CHANNELS, rows.start, &vertical, out);
        }
    }
}

fn horizontal_pass<const CHANNELS: usize>(
    source: &[u8],
    in_width: usize,
    weights: &Coefficients,
    out: &mut [u8],
) {
    let out_width = weights.bounds.len();
    let rows = source.chunks_exact(in_width * CHANNELS);
    for (row, out_row) in rows.zip(out.chunks_exact_mut(out_width * CHANNELS)) {
        for (index, pixel) in out_row.chunks_exact_mut(CHANNELS).enumerate() {
            let (Range { start, end }, weights) = weights.window(index);
            let mut sums = [1_i32 << (PRECISION_BITS - 1); CHANNELS];
            for (samples, &weight) in
                row[start * CHANNELS..end * CHANNELS].chunks_exact(CHANNELS).zip(weights)
            {
                for (sum, &sample) in sums.iter_mut().zip(samples) {
                    *sum = sum.wrapping_add(i32::from(sample) * weight);
                }
            }
            for (value, sum) in pixel.iter_mut().zip(sums) {
                *value = clip(sum);
            }
        }
    }
}

// `source` begins at row `first_row` of the image.
fn vertical_pass(source: &[u8], stride: usize, first_row: usize, weights: &Coefficients, out: &mut [u8]) {
    let mut sums = vec![0_i32; stride];
    for (index, out_row) in out.chunks_exact_mut(stride).enumerate() {
        let (Range { start, end }, weights) = weights.window(index);
        let rows = &source[(start - first_row) * stride..(end - first_row) * stride];
        sums.fill(1 << (PRECISION_BITS - 1));
        for (row, &weight) in rows.chunks_exact(stride).zip(weights) {
            for (sum, &sample) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(i32::from(sample) * weight);
            }
        }
        for (value, &sum) in out_row.iter_mut().zip(&sums) {
            *value = clip(sum);
        }
    }
}

fn clip(sum: i32) -> u8 {
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}
