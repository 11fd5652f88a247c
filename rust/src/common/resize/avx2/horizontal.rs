//! The horizontal pass: rows are transposed a tile at a time, so that what runs is the vertical kernel.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::kernels::{CHUNK_QUADS, Chunk, Rows};
use super::super::windows::{Window, Windows};
use super::transpose::{COLUMN_BYTES, transpose};
use super::{check, weighted};

/// What a tile of transposed columns may take, so that it stays in the L1 cache.
const TILE_BYTES: usize = 16 << 10;

/// Bytes of scratch memory that [`horizontal`] needs.
pub fn scratch_bytes(windows: &Windows, channels: usize) -> usize {
    let block = block_pixels(windows, channels);
    let widest = windows.windows.chunks(block).map(span).map(|(first, end)| end - first).max().unwrap_or(0);
    (widest + 4) * channels * COLUMN_BYTES
}

// Output pixels of one tile, a multiple of 4.
fn block_pixels(windows: &Windows, channels: usize) -> usize {
    let columns = TILE_BYTES / (COLUMN_BYTES * channels);
    let all = span(&windows.windows).1;
    let per_pixel = (all as f64 / windows.windows.len() as f64).max(1e-3);
    let free = columns.saturating_sub(windows.most_quads()) as f64;
    ((free / per_pixel) as usize).clamp(4, 256) & !3
}

fn span(windows: &[Window]) -> (usize, usize) {
    let first = windows.iter().map(|window| window.first).min().unwrap_or(0);
    let end = windows.iter().map(|window| window.first + window.quads).max().unwrap_or(0);
    (first, end)
}

/// Resamples a chunk of rows along x, for output pixels from `first_pixel` on, into quads of rows.
pub fn horizontal(
    windows: &Windows,
    channels: usize,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    chunk: Chunk,
) {
    check();
    let Chunk { quads, stride } = chunk;
    assert!(quads.len() >= CHUNK_QUADS * stride && pixels.end <= windows.windows.len());
    assert!((pixels.len().next_multiple_of(4)) * channels * 4 <= stride);
    // SAFETY: AVX2 was checked.
    unsafe {
        match channels {
            1 => horizontal_channels::<1>(windows, source, first_row, pixels, scratch, quads, stride),
            4 => horizontal_channels::<4>(windows, source, first_row, pixels, scratch, quads, stride),
            _ => horizontal_channels::<3>(windows, source, first_row, pixels, scratch, quads, stride),
        }
    }
}

#[target_feature(enable = "avx2")]
fn horizontal_channels<const CHANNELS: usize>(
    table: &Windows,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    quads: &mut [u8],
    stride: usize,
) {
    let block = block_pixels(table, CHANNELS);
    let windows = &table.windows[pixels];
    for (index, block_windows) in windows.chunks(block).enumerate() {
        let (first, end) = span(block_windows);
        transpose::<CHANNELS>(source, first_row, first, end, scratch);
        for (group, four) in block_windows.chunks(4).enumerate() {
            let at = (index * block + 4 * group) * CHANNELS * 4;
            // SAFETY: an all-zero vector is valid.
            let mut sums: [[__m256i; 2]; 16] = unsafe { std::mem::zeroed() };
            for (window, sums) in four.iter().zip(sums.chunks_exact_mut(CHANNELS)) {
                let column = (window.first - first) * CHANNELS * COLUMN_BYTES;
                let lanes = table.lanes(window);
                let used = window.quads * CHANNELS * COLUMN_BYTES;
                let columns = &scratch[column..column + used];
                // SAFETY: each channel's run of `quads` columns, CHANNELS apart, lies within `columns`.
                unsafe {
                    let columns = columns.as_ptr();
                    match (window.skips_front, window.skips_back) {
                        (false, false) => pixel::<CHANNELS, false, false>(columns, lanes, sums),
                        (false, true) => pixel::<CHANNELS, false, true>(columns, lanes, sums),
                        (true, false) => pixel::<CHANNELS, true, false>(columns, lanes, sums),
                        (true, true) => pixel::<CHANNELS, true, true>(columns, lanes, sums),
                    }
                }
            }
            for (values, four) in sums[..4 * CHANNELS].chunks_exact(4).enumerate() {
                let halves: [__m256i; 2] = std::array::from_fn(|half| {
                    let [a, b, c, d] = std::array::from_fn(|value| four[value][half]);
                    _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d))
                });
                for (half, bytes) in halves.into_iter().enumerate() {
                    let at = 2 * half * stride + at + 16 * values;
                    assert!(at + stride + 16 <= quads.len());
                    // SAFETY: both stores end before the end of `quads`.
                    unsafe {
                        let to = quads.as_mut_ptr().add(at);
                        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(bytes));
                        _mm_storeu_si128(to.add(stride).cast(), _mm256_extracti128_si256::<1>(bytes));
                    }
                }
            }
        }
    }
}

/// # Safety
/// `columns` must begin `lanes.len() * CHANNELS` readable columns.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pixel<const CHANNELS: usize, const FRONT: bool, const BACK: bool>(
    columns: *const u8,
    lanes: &[[i32; 3]],
    sums: &mut [[__m256i; 2]],
) {
    for (channel, sums) in sums.iter_mut().enumerate() {
        // SAFETY: by the caller.
        *sums = unsafe {
            weighted::<FRONT, BACK>(columns.add(channel * COLUMN_BYTES), CHANNELS * COLUMN_BYTES, lanes)
        };
    }
}
