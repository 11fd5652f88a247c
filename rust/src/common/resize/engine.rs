//! Both passes in one sweep: strips of columns, over a ring of quads that stays in the cache.
//!
//! A chunk of source rows is resampled along x into quads of rows, and every output row whose window is then
//! complete is made from them. A side that keeps its size has its pass replaced by a mere change of layout.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::kernels::{self, CHUNK_QUADS, Chunk, Horizontal, Rows};
use super::windows::Windows;
use crate::common::memory::Buffer;
use crate::common::simd::Level;
use crate::error::Result;

/// What a resize consists of. At least one of the passes is there.
pub struct Passes {
    /// Instruction set of the kernels.
    pub level: Level,
    /// Bytes of a pixel.
    pub channels: usize,
    /// The pass along x.
    pub horizontal: Option<Arc<Horizontal>>,
    /// The pass along y.
    pub vertical: Option<Arc<Windows>>,
}

/// What the quads of a strip may take, so that they stay in the L2 cache. No less: narrow strips read the source in
/// short runs, which costs more than a second look at the quads.
const RING_BYTES: usize = 320 << 10;
/// Columns of a strip are a multiple of this; no vector of a kernel is longer.
const STRIP_ALIGN: usize = 64;
/// An image is split over threads only if each gets this much work, in samples read and values written.
pub const BAND_BYTES: usize = 1 << 20;

impl Passes {
    /// Resizes `source` into `out`, rows of `out_row_bytes`; splits a large image over the current rayon pool.
    pub fn run(&self, source: Rows, out: &mut [u8], out_row_bytes: usize) -> Result<()> {
        let rows = out.len() / out_row_bytes;
        let bands = match rayon::current_thread_index() {
            Some(_) => {
                rayon::current_num_threads().min((source.bytes.len() + out.len()) / BAND_BYTES).min(rows / 32)
            }
            None => 1,
        };
        if bands <= 1 {
            return self.band(source, 0, out, out_row_bytes);
        }
        // Whole chunks, so that without a vertical pass no row is resampled twice.
        let band_rows = rows.div_ceil(bands).next_multiple_of(4 * CHUNK_QUADS);
        out.par_chunks_mut(band_rows * out_row_bytes)
            .enumerate()
            .try_for_each(|(band, out)| self.band(source, band * band_rows, out, out_row_bytes))
    }

    // Makes the output rows from `first_row` on.
    fn band(&self, source: Rows, first_row: usize, out: &mut [u8], out_row_bytes: usize) -> Result<()> {
        // A chunk always fits behind the quads that must be kept; the rest delays moving them to the front.
        let window_quads = self.vertical.as_ref().map_or(0, |windows| windows.most_quads());
        let mut capacity = window_quads + 2 * CHUNK_QUADS + window_quads / 2;
        if self.vertical.is_none() {
            capacity = CHUNK_QUADS;
        }
        let widest = RING_BYTES / (4 * capacity) / (STRIP_ALIGN * self.channels) * STRIP_ALIGN;
        let out_pixels = out_row_bytes / self.channels;
        let strips = out_pixels.div_ceil(widest.max(STRIP_ALIGN));
        let strip_pixels = out_pixels.div_ceil(strips).next_multiple_of(STRIP_ALIGN);
        let stride = 4 * (strip_pixels.min(out_pixels) * self.channels + 16).next_multiple_of(STRIP_ALIGN);
        let scratch_bytes = self.horizontal.as_ref().map_or(0, |weights| weights.scratch_bytes());
        let mut memory = Buffer::take(stride * capacity + scratch_bytes)?;
        let (ring, scratch) = memory.bytes_mut().split_at_mut(stride * capacity);
        for start in (0..out_pixels).step_by(strip_pixels) {
            let pixels = start..(start + strip_pixels).min(out_pixels);
            let strip = Strip { passes: self, source, stride, pixels };
            match &self.vertical {
                Some(windows) => {
                    strip.resample_rows(windows, first_row, ring, scratch, out, out_row_bytes);
                }
                None => strip.keep_rows(first_row, ring, scratch, out, out_row_bytes),
            }
        }
        Ok(())
    }
}

struct Strip<'a> {
    passes: &'a Passes,
    source: Rows<'a>,
    stride: usize,
    pixels: Range<usize>,
}

impl Strip<'_> {
    fn resample_rows(
        &self,
        windows: &Windows,
        first_row: usize,
        ring: &mut [u8],
        scratch: &mut [u8],
        out: &mut [u8],
        out_row_bytes: usize,
    ) {
        let stride = self.stride;
        let values = self.values();
        // The ring holds quads `from..to` of the image.
        let mut from = windows.keep_from(first_row) / CHUNK_QUADS * CHUNK_QUADS;
        let mut to = from;
        for (index, row) in out.chunks_exact_mut(out_row_bytes).enumerate() {
            let window = &windows.windows[first_row + index];
            while to < window.first + window.quads {
                if (to - from + CHUNK_QUADS) * stride > ring.len() {
                    let keep = windows.keep_from(first_row + index).min(to);
                    ring.copy_within((keep - from) * stride..(to - from) * stride, 0);
                    from = keep;
                }
                let at = (to - from) * stride;
                self.make_chunk(4 * to, scratch, &mut ring[at..at + CHUNK_QUADS * stride]);
                to += CHUNK_QUADS;
            }
            let quads = &ring[(window.first - from) * stride..(to - from) * stride];
            kernels::vertical(self.passes.level, windows, window, quads, stride, &mut row[values.clone()]);
        }
    }

    fn keep_rows(
        &self,
        first_row: usize,
        ring: &mut [u8],
        scratch: &mut [u8],
        out: &mut [u8],
        out_row_bytes: usize,
    ) {
        let values = self.values();
        for (index, rows) in out.chunks_mut(4 * CHUNK_QUADS * out_row_bytes).enumerate() {
            self.make_chunk(first_row + 4 * CHUNK_QUADS * index, scratch, ring);
            for (lanes, rows) in ring.chunks(self.stride).zip(rows.chunks_mut(4 * out_row_bytes)) {
                let mut rows: Vec<&mut [u8]> =
                    rows.chunks_exact_mut(out_row_bytes).map(|row| &mut row[values.clone()]).collect();
                kernels::deinterleave(self.passes.level, lanes, &mut rows);
            }
        }
    }

    fn make_chunk(&self, first_row: usize, scratch: &mut [u8], quads: &mut [u8]) {
        let Passes { level, channels, horizontal, .. } = self.passes;
        let chunk = Chunk { quads, stride: self.stride };
        match horizontal {
            Some(weights) => {
                let pixels = self.pixels.clone();
                kernels::horizontal(
                    *level,
                    weights,
                    *channels,
                    &self.source,
                    first_row,
                    pixels,
                    scratch,
                    chunk,
                );
            }
            None => kernels::interleave(*level, &self.source, first_row, self.values(), chunk),
        }
    }

    fn values(&self) -> Range<usize> {
        self.pixels.start * self.passes.channels..self.pixels.end * self.passes.channels
    }
}
