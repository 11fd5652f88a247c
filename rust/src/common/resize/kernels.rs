//! The one place where a level becomes a kernel.

use std::ops::Range;

use super::coefficients::Coefficients;
use super::windows::{Window, Windows};
use crate::common::simd::Level;

#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Quads of rows that the horizontal pass makes at a time.
pub const CHUNK_QUADS: usize = 4;

/// Rows of an image, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// All rows.
    pub bytes: &'a [u8],
    /// Length of one.
    pub row_bytes: usize,
    /// How many.
    pub count: usize,
}

impl<'a> Rows<'a> {
    /// Everything from the start of row `index` on; the last row stands for those past the end.
    pub fn tail_from(&self, index: usize) -> &'a [u8] {
        &self.bytes[index.min(self.count - 1) * self.row_bytes..]
    }

    /// Bytes `values` of row `index`; the last row stands for those past the end.
    pub fn values(&self, index: usize, values: &Range<usize>) -> &'a [u8] {
        &self.tail_from(index)[values.clone()]
    }
}

/// Weights of the horizontal pass.
#[derive(Debug)]
pub enum Horizontal {
    /// For the transposing kernel.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Tiles),
    /// For the permuting kernel.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Blocks),
}

impl Horizontal {
    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(tiles) => tiles.size_bytes(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(blocks) => blocks.size_bytes(),
        }
    }
}

/// Weights of the vertical pass; `None` if the level has no kernel that can take them.
pub fn vertical_weights(level: Level, coefficients: &Coefficients) -> Option<Windows> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::windows(coefficients),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::windows(coefficients),
        _ => None,
    }
}

/// Weights of the horizontal pass over rows of `row_bytes`; `None` if the level has no kernel that can take them.
pub fn horizontal_weights(
    level: Level,
    coefficients: &Coefficients,
    channels: usize,
    row_bytes: usize,
) -> Option<Horizontal> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::Tiles::new(coefficients, channels).map(Horizontal::Avx2),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::blocks(coefficients, channels, row_bytes)
            .map(Horizontal::Avx512)
            .or_else(|| avx2::Tiles::new(coefficients, channels).map(Horizontal::Avx2)),
        _ => None,
    }
}

/// Bytes of scratch memory that [`horizontal`] needs.
pub fn scratch_bytes(weights: &Horizontal) -> usize {
    match weights {
        #[cfg(target_arch = "x86_64")]
        Horizontal::Avx2(tiles) => tiles.scratch_bytes,
        #[cfg(target_arch = "x86_64")]
        Horizontal::Avx512(_) => 0,
    }
}

/// Where quads of rows go: `CHUNK_QUADS` runs of lanes, `stride` bytes apart.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// The memory; what lies past the last column asked for may be overwritten.
    pub quads: &'a mut [u8],
    /// Distance in bytes.
    pub stride: usize,
}

/// Resamples a chunk of rows from `first_row` on along x, for the output pixels `pixels`.
pub fn horizontal(
    weights: &Horizontal,
    channels: usize,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    chunk: Chunk,
) {
    match weights {
        #[cfg(target_arch = "x86_64")]
        Horizontal::Avx2(tiles) => {
            avx2::horizontal(tiles, channels, source, first_row, pixels, scratch, chunk);
        }
        #[cfg(target_arch = "x86_64")]
        Horizontal::Avx512(blocks) => avx512::horizontal(blocks, channels, source, first_row, pixels, chunk),
    }
}

/// Resamples one row along y, from the quads of its window.
pub fn vertical(
    level: Level,
    weights: &Windows,
    window: &Window,
    quads: &[u8],
    stride: usize,
    out: &mut [u8],
) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::vertical(weights, window, quads, stride, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::vertical(weights, window, quads, stride, out),
        _ => no_kernel(level),
    }
}

/// Turns a chunk of rows from `first_row` on into quads, for the bytes `values` of each row.
pub fn interleave(level: Level, source: &Rows, first_row: usize, values: Range<usize>, chunk: Chunk) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => avx2::interleave(source, first_row, values, chunk),
        _ => no_kernel(level),
    }
}

/// Turns one quad back into up to four rows of one length.
pub fn deinterleave(level: Level, lanes: &[u8], rows: &mut [&mut [u8]]) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => avx2::deinterleave(lanes, rows),
        _ => no_kernel(level),
    }
}

fn no_kernel(level: Level) -> ! {
    unreachable!("level {level} made no weights, so it runs no kernel")
}
