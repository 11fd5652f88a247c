//! The reference: plain safe Rust, one value at a time. Every other kernel is held to it.

use super::coefficients::{Coefficients, PRECISION_BITS};
use super::{Arithmetic, Filter, Size};

const CHANNELS: usize = 3;

/// Resizes RGB; lengths have been checked.
pub fn resize_rgb(source: &[u8], size: Size, filter: Filter, arithmetic: Arithmetic, out: &mut [u8]) {
    let Size { in_width, in_height, out_width, out_height } = size;
    let weights = |from, to| (from != to).then(|| arithmetic.coefficients(from, to, filter));
    let (horizontal, vertical) = (weights(in_width, out_width), weights(in_height, out_height));
    match (horizontal, vertical) {
        (None, None) => out.copy_from_slice(source),
        (Some(weights), None) => horizontal_pass(source, in_width, &weights, out),
        (None, Some(weights)) => vertical_pass(source, in_width, &weights, out),
        (Some(horizontal), Some(vertical)) if arithmetic.vertical_first(&size) => {
            let mut middle = vec![0; in_width * out_height * CHANNELS];
            vertical_pass(source, in_width, &vertical, &mut middle);
            horizontal_pass(&middle, in_width, &horizontal, out);
        }
        (Some(horizontal), Some(vertical)) => {
            let mut middle = vec![0; out_width * in_height * CHANNELS];
            horizontal_pass(source, in_width, &horizontal, &mut middle);
            vertical_pass(&middle, out_width, &vertical, out);
        }
    }
}

fn horizontal_pass(source: &[u8], in_width: usize, weights: &Coefficients, out: &mut [u8]) {
    let out_width = weights.bounds.len();
    for (row, out_row) in
        source.chunks_exact(in_width * CHANNELS).zip(out.chunks_exact_mut(out_width * CHANNELS))
    {
        for ((pixel, &(first, taps)), fixed) in out_row
            .chunks_exact_mut(CHANNELS)
            .zip(&weights.bounds)
            .zip(weights.weights.chunks_exact(weights.taps_stride))
        {
            for (channel, value) in pixel.iter_mut().enumerate() {
                let samples = row[first * CHANNELS + channel..].iter().step_by(CHANNELS);
                *value = combine(samples.take(taps).zip(fixed));
            }
        }
    }
}

fn vertical_pass(source: &[u8], width: usize, weights: &Coefficients, out: &mut [u8]) {
    let stride = width * CHANNELS;
    for ((out_row, &(first, taps)), fixed) in out
        .chunks_exact_mut(stride)
        .zip(&weights.bounds)
        .zip(weights.weights.chunks_exact(weights.taps_stride))
    {
        for (column, value) in out_row.iter_mut().enumerate() {
            let samples = source[first * stride + column..].iter().step_by(stride);
            *value = combine(samples.take(taps).zip(fixed));
        }
    }
}

fn combine<'a>(taps: impl Iterator<Item = (&'a u8, &'a i32)>) -> u8 {
    let start = 1_i32 << (PRECISION_BITS - 1);
    let sum = taps.fold(start, |sum, (&sample, &weight)| sum.wrapping_add(i32::from(sample) * weight));
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}
