//! The one place where a level becomes a kernel.

use std::ops::Range;

use super::coefficients::Coefficients;
use super::layout::{Chunk, Outputs, Ring, Rows};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::tiles::Tiles;
use super::windows::{self, Windows};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::common::simd::Level;

/// Rows of a group, the layout that the kernels of a level want between the passes.
pub fn group_rows(level: Level) -> usize {
    if level == Level::Avx2 { 2 } else { 4 }
}

/// Weights of the horizontal pass.
#[derive(Debug)]
pub enum Horizontal {
    /// For the transposing kernels.
    Tiles(Tiles),
    /// For the permuting kernel.
    #[cfg(target_arch = "x86_64")]
    Blocks(avx512::Blocks),
}

impl Horizontal {
    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Tiles(tiles) => tiles.size_bytes(),
            #[cfg(target_arch = "x86_64")]
            Self::Blocks(blocks) => blocks.size_bytes(),
        }
    }

    /// Bytes of scratch memory that [`horizontal`] needs.
    pub fn scratch_bytes(&self) -> usize {
        match self {
            Self::Tiles(tiles) => tiles.scratch_bytes,
            #[cfg(target_arch = "x86_64")]
            Self::Blocks(_) => 0,
        }
    }
}

/// Weights of the vertical pass; `None` if the level has no kernel that can take them.
pub fn vertical_weights(level: Level, coefficients: &Coefficients) -> Option<Windows> {
    match level {
        Level::Scalar => None,
        Level::Avx2 => windows::pairs(coefficients),
        Level::Neon => Windows::new(coefficients, 0..4, windows::halves),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Windows::new(coefficients, 0..4, avx512::planes),
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 => None,
    }
}

/// Weights of the horizontal pass over rows of `row_bytes`; `None` if the level has no kernel that can take them.
pub fn horizontal_weights(
    level: Level,
    coefficients: &Coefficients,
    channels: usize,
    row_bytes: usize,
) -> Option<Horizontal> {
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512
        && let Some(blocks) = avx512::blocks(coefficients, channels, row_bytes)
    {
        return Some(Horizontal::Blocks(blocks));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row_bytes;
    match level {
        Level::Scalar => None,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => {
            let windows = windows::pairs(coefficients)?;
            Some(Horizontal::Tiles(Tiles::new(windows, channels, avx2::COLUMN_BYTES)))
        }
        #[cfg(target_arch = "aarch64")]
        Level::Neon => {
            let windows = Windows::new(coefficients, 0..1, windows::halves)?;
            Some(Horizontal::Tiles(Tiles::new(windows, channels, neon::COLUMN_BYTES)))
        }
        #[allow(unreachable_patterns, reason = "there are other architectures")]
        _ => None,
    }
}

/// Resamples a chunk of rows from `first_row` on along x, for the output pixels `pixels`.
#[allow(clippy::too_many_arguments)]
pub fn horizontal(
    level: Level,
    weights: &Horizontal,
    channels: usize,
    source: &Rows,
    first_row: usize,
    pixels: Range<usize>,
    scratch: &mut [u8],
    chunk: Chunk,
) {
    match (level, weights) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, Horizontal::Tiles(tiles)) => {
            avx2::horizontal::<2>(tiles, channels, source, first_row, pixels, scratch, chunk);
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, Horizontal::Tiles(tiles)) => {
            avx2::horizontal::<4>(tiles, channels, source, first_row, pixels, scratch, chunk);
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, Horizontal::Blocks(blocks)) => {
            avx512::horizontal(blocks, channels, source, first_row, pixels, chunk);
        }
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, Horizontal::Tiles(tiles)) => {
            neon::horizontal(tiles, channels, source, first_row, pixels, scratch, chunk);
        }
        _ => no_kernel(level),
    }
}

/// Bytes of scratch memory that [`vertical`] needs.
pub fn vertical_scratch_bytes(level: Level) -> usize {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::SCRATCH_BYTES,
        _ => 0,
    }
}

/// Resamples along y: output rows `rows`, whose windows the ring must hold.
pub fn vertical(
    level: Level,
    weights: &Windows,
    rows: Range<usize>,
    ring: &Ring,
    scratch: &mut [u8],
    out: &mut Outputs,
) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::vertical(weights, rows, ring, scratch, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::vertical(weights, rows, ring, out),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => {
            let _ = scratch;
            for (index, window) in weights.windows()[rows].iter().enumerate() {
                let groups = &ring.groups[(window.first() - ring.first) * ring.stride..];
                neon::vertical(weights, window, groups, ring.stride, out.row(index));
            }
        }
        _ => no_kernel(level),
    }
}

/// Turns a chunk of rows from `first_row` on into groups, for the bytes `values` of each row.
pub fn interleave(level: Level, source: &Rows, first_row: usize, values: Range<usize>, chunk: Chunk) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::interleave(source, first_row, values, chunk),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::interleave(source, first_row, values, chunk),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => neon::interleave(source, first_row, values, chunk),
        _ => no_kernel(level),
    }
}

/// Turns one group back into rows of one length, up to as many as a group has.
pub fn deinterleave(level: Level, lanes: &[u8], rows: &mut [&mut [u8]]) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::deinterleave(lanes, rows),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::deinterleave(lanes, rows),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => neon::deinterleave(lanes, rows),
        _ => no_kernel(level),
    }
}

fn no_kernel(level: Level) -> ! {
    unreachable!("level {level} made no weights, so it runs no kernel")
}
