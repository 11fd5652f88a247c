//! Both passes in one sweep: strips of columns, over a ring of groups of rows that stays in the cache.
//!
//! A chunk of source rows is resampled along x into groups of rows, and every output row whose window is then
//! complete is made from them. A side that keeps its size has its pass replaced by a mere change of layout.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::kernels::{self, CHUNK_ROWS, Chunk, Horizontal, Outputs, Ring, Rows};
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

/// What the ring of a strip may take, so that they stay in the L2 cache. No less: narrow strips read the source in
/// short runs, which costs more than a second look at the groups.
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
        let band_rows = rows.div_ceil(bands).next_multiple_of(CHUNK_ROWS);
        out.par_chunks_mut(band_rows * out_row_bytes)
            .enumerate()
            .try_for_each(|(band, out)| self.band(source, band * band_rows, out, out_row_bytes))
    }

    // Makes the output rows from `first_row` on.
    fn band(&self, source: Rows, first_row: usize, out: &mut [u8], out_row_bytes: usize) -> Result<()> {
        let group_rows = kernels::group_rows(self.level);
        let chunk_groups = CHUNK_ROWS / group_rows;
        // A chunk always fits behind the groups that must be kept; the rest delays moving them to the front.
        let capacity = self.vertical.as_ref().map_or(chunk_groups, |windows| {
            windows.most_groups() + 2 * chunk_groups + windows.most_groups() / 2
        });
        let widest = RING_BYTES / (group_rows * capacity) / (STRIP_ALIGN * self.channels) * STRIP_ALIGN;
        let out_pixels = out_row_bytes / self.channels;
        let strips = out_pixels.div_ceil(widest.max(STRIP_ALIGN));
        let strip_pixels = out_pixels.div_ceil(strips).next_multiple_of(STRIP_ALIGN);
        let stride =
            group_rows * (strip_pixels.min(out_pixels) * self.channels + 32).next_multiple_of(STRIP_ALIGN);
        // The passes take turns, and share the memory.
        let scratch_bytes = self.horizontal.as_ref().map_or(0, |weights| weights.scratch_bytes()).max(
            self.vertical.as_ref().map_or(0, |weights| kernels::vertical_scratch_bytes(self.level, weights)),
        );
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
        let (stride, group_rows) = (self.stride, windows.group_len);
        let chunk_groups = CHUNK_ROWS / group_rows;
        // The ring holds groups `from..to` of the image.
        let mut from = windows.keep_from(first_row) / chunk_groups * chunk_groups;
        let mut to = from;
        let rows = out.len() / out_row_bytes;
        let mut done = 0;
        while done < rows {
            while to < windows.windows[first_row + done].end() {
                if (to - from + chunk_groups) * stride > ring.len() {
                    let keep = windows.keep_from(first_row + done).min(to);
                    ring.copy_within((keep - from) * stride..(to - from) * stride, 0);
                    from = keep;
                }
                let at = (to - from) * stride;
                self.make_chunk(group_rows * to, scratch, &mut ring[at..at + chunk_groups * stride]);
                to += chunk_groups;
            }
            let due = &windows.windows[first_row + done..first_row + rows];
            let due = due.iter().take_while(|window| window.end() <= to).count();
            let range = first_row + done..first_row + done + due;
            let groups = Ring { groups: &ring[..(to - from) * stride], first: from, stride };
            let bytes = &mut out[done * out_row_bytes..(done + due) * out_row_bytes];
            let mut outputs = Outputs { bytes, row_bytes: out_row_bytes, values: self.values() };
            kernels::vertical(self.passes.level, windows, range, &groups, scratch, &mut outputs);
            done += due;
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
        let (values, group_rows) = (self.values(), kernels::group_rows(self.passes.level));
        for (index, rows) in out.chunks_mut(CHUNK_ROWS * out_row_bytes).enumerate() {
            self.make_chunk(first_row + CHUNK_ROWS * index, scratch, ring);
            for (lanes, rows) in ring.chunks(self.stride).zip(rows.chunks_mut(group_rows * out_row_bytes)) {
                let mut rows: Vec<&mut [u8]> =
                    rows.chunks_exact_mut(out_row_bytes).map(|row| &mut row[values.clone()]).collect();
                kernels::deinterleave(self.passes.level, lanes, &mut rows);
            }
        }
    }

    fn make_chunk(&self, first_row: usize, scratch: &mut [u8], groups: &mut [u8]) {
        let Passes { level, channels, horizontal, .. } = self.passes;
        let chunk = Chunk { groups, stride: self.stride };
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
