//! The horizontal pass: rows are transposed a tile at a time, so that what runs is the vertical kernel.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::coefficients::Coefficients;
use super::super::kernels::{CHUNK_QUADS, Chunk, Rows};
use super::super::windows::{Window, Windows};
use super::transpose::{COLUMN_BYTES, transpose};
use super::{check, weighted};

/// What a tile of transposed columns may take, so that it stays in the L1 cache.
const TILE_BYTES: usize = 16 << 10;

/// Weights, and how the rows are cut into tiles.
#[derive(Debug)]
pub struct Tiles {
    windows: Windows,
    /// Output pixels of a tile, a multiple of 4.
    tile_pixels: usize,
    /// Bytes of scratch memory that [`horizontal`] needs.
    pub scratch_bytes: usize,
}

impl Tiles {
    /// Lays out the weights; `None` if they are out of range.
    pub fn new(coefficients: &Coefficients, channels: usize) -> Option<Self> {
        let windows = super::windows(coefficients)?;
        let columns = TILE_BYTES / (COLUMN_BYTES * channels);
        let per_pixel = (span(&windows.windows).1 as f64 / windows.windows.len() as f64).max(1e-3);
        let free = columns.saturating_sub(windows.most_quads()) as f64;
        let tile_pixels = ((free / per_pixel) as usize).clamp(4, 256) & !3;
        // Strips may begin at any multiple of 4 pixels.
        let spans = (0..windows.windows.len()).step_by(4).map(|start| {
            let (first, end) = span(&windows.windows[start..windows.windows.len().min(start + tile_pixels)]);
            end - first
        });
        let scratch_bytes = (spans.max().unwrap_or(0) + 4) * channels * COLUMN_BYTES;
        Some(Self { windows, tile_pixels, scratch_bytes })
    }

    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.windows.size_bytes()
    }
}

fn span(windows: &[Window]) -> (usize, usize) {
    let first = windows.iter().map(|window| window.first).min().unwrap_or(0);
    let end = windows.iter().map(|window| window.first + window.quads).max().unwrap_or(0);
    (first, end)
}

/// Resamples a chunk of rows along x, for output pixels `pixels`, into quads of rows.
pub fn horizontal(
    tiles: &Tiles,
    channels: usize,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    chunk: Chunk,
) {
    check();
    assert!(chunk.quads.len() >= CHUNK_QUADS * chunk.stride && pixels.end <= tiles.windows.windows.len());
    assert!((pixels.len().next_multiple_of(4)) * channels * 4 <= chunk.stride);
    let pass = Pass { tiles, source, first_row };
    // SAFETY: AVX2 was checked.
    unsafe {
        match channels {
            1 => pass.run::<1>(pixels, scratch, chunk),
            4 => pass.run::<4>(pixels, scratch, chunk),
            _ => pass.run::<3>(pixels, scratch, chunk),
        }
    }
}

struct Pass<'a> {
    tiles: &'a Tiles,
    source: &'a Rows<'a>,
    first_row: usize,
}

impl Pass<'_> {
    #[target_feature(enable = "avx2")]
    fn run<const CHANNELS: usize>(&self, pixels: Range<usize>, scratch: &mut [u8], mut chunk: Chunk) {
        let Tiles { windows: table, tile_pixels, .. } = self.tiles;
        for (tile, windows) in table.windows[pixels].chunks(*tile_pixels).enumerate() {
            let (first, end) = span(windows);
            transpose::<CHANNELS>(self.source, self.first_row, first, end, scratch);
            for (group, four) in windows.chunks(4).enumerate() {
                // SAFETY: an all-zero vector is valid.
                let mut sums: [[__m256i; 2]; 16] = unsafe { std::mem::zeroed() };
                for (window, sums) in four.iter().zip(sums.chunks_exact_mut(CHANNELS)) {
                    let column = (window.first - first) * CHANNELS * COLUMN_BYTES;
                    let used = window.quads * CHANNELS * COLUMN_BYTES;
                    pixel::<CHANNELS>(window, table.lanes(window), &scratch[column..column + used], sums);
                }
                let value = (tile * tile_pixels + 4 * group) * CHANNELS;
                for (index, four) in sums[..4 * CHANNELS].chunks_exact(4).enumerate() {
                    store_four(four, &mut chunk, value + 4 * index);
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn pixel<const CHANNELS: usize>(
    window: &Window,
    lanes: &[[i32; 3]],
    columns: &[u8],
    sums: &mut [[__m256i; 2]],
) {
    assert!(columns.len() >= lanes.len() * CHANNELS * COLUMN_BYTES);
    for (channel, sums) in sums[..CHANNELS].iter_mut().enumerate() {
        let stride = CHANNELS * COLUMN_BYTES;
        // SAFETY: each channel's run of columns, CHANNELS apart, lies within `columns`.
        *sums = unsafe {
            let columns = columns.as_ptr().add(channel * COLUMN_BYTES);
            match (window.skips_front, window.skips_back) {
                (false, false) => weighted::<false, false>(columns, stride, lanes),
                (false, true) => weighted::<false, true>(columns, stride, lanes),
                (true, false) => weighted::<true, false>(columns, stride, lanes),
                (true, true) => weighted::<true, true>(columns, stride, lanes),
            }
        };
    }
}

// The sums of 16 rows for four output values become four lanes of four quads.
#[inline]
#[target_feature(enable = "avx2")]
fn store_four(four: &[[__m256i; 2]], chunk: &mut Chunk, value: usize) {
    let (a, b, c, d) = (four[0], four[1], four[2], four[3]);
    let halves = [
        _mm256_packus_epi16(_mm256_packs_epi32(a[0], b[0]), _mm256_packs_epi32(c[0], d[0])),
        _mm256_packus_epi16(_mm256_packs_epi32(a[1], b[1]), _mm256_packs_epi32(c[1], d[1])),
    ];
    let stride = chunk.stride;
    for (half, bytes) in halves.into_iter().enumerate() {
        let at = 2 * half * stride + 4 * value;
        assert!(at + stride + 16 <= chunk.quads.len());
        // SAFETY: both stores end before the end of `quads`.
        unsafe {
            let to = chunk.quads.as_mut_ptr().add(at);
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(bytes));
            _mm_storeu_si128(to.add(stride).cast(), _mm256_extracti128_si256::<1>(bytes));
        }
    }
}
