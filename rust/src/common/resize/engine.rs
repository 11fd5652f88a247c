//! Both passes in one sweep: strips of columns, over a ring of groups of rows that stays in the cache.
//!
//! A chunk of source rows is resampled along x into groups of rows, and every output row whose window is then
//! complete is made from them. A side that keeps its size has its pass replaced by a mere change of layout. The rows
//! are the output, or go on by bands while they are in the cache.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use super::kernels::{self, Horizontal};
use super::layout::{CHUNK_ROWS, Chunk, Outputs, Ring, Rows};
use super::windows::Windows;
use crate::common::bands::Bands;
use crate::common::memory::Buffer;
use crate::common::simd::Level;
use crate::common::threads;
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
pub const PART_BYTES: usize = 1 << 20;

/// The rows that a resize makes, and where they go: into the output, or on by bands.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// How many rows.
    pub rows: usize,
    /// Bytes of one.
    pub row_bytes: usize,
    /// What becomes of them; without, they are the output.
    pub bands: Option<Bands<'a>>,
}

impl Passes {
    /// Resizes `source` into `out`; splits a large image over the current rayon pool. Returns the seconds that its
    /// threads worked, in total.
    pub fn run(&self, source: Rows, target: Target, out: &mut [u8]) -> Result<f64> {
        let Target { rows, row_bytes, .. } = target;
        // What the kernels' loads rely on.
        assert!(source.bytes.len() >= source.count * source.row_bytes, "the source has all its rows");
        let parts =
            threads::spread().min((source.bytes.len() + rows * row_bytes) / PART_BYTES).min(rows / 32);
        if parts <= 1 {
            return self.part(source, target, 0..rows, out);
        }
        let part_rows = rows.div_ceil(parts).next_multiple_of(self.step_rows(&target));
        let part = |(part, out): (usize, &mut [u8])| {
            let first_row = part * part_rows;
            self.part(source, target, first_row..rows.min(first_row + part_rows), out)
        };
        if target.bands.is_some() {
            return (0..rows.div_ceil(part_rows)).into_par_iter().map(|at| part((at, &mut []))).sum();
        }
        out.par_chunks_mut(part_rows * row_bytes).enumerate().map(part).sum()
    }

    // What the rows of a part are a multiple of: whole bands; and without a vertical pass whole chunks, so that no row
    // is resampled twice.
    fn step_rows(&self, target: &Target) -> usize {
        match target.bands {
            None => CHUNK_ROWS,
            Some(bands) if self.vertical.is_some() => bands.rows,
            Some(bands) => bands.rows * (CHUNK_ROWS >> bands.rows.trailing_zeros().min(CHUNK_ROWS.ilog2())),
        }
    }

    // Makes the output rows `rows`, which become all of `out` where they do not go on by bands.
    fn part(&self, source: Rows, target: Target, rows: Range<usize>, out: &mut [u8]) -> Result<f64> {
        let started = Instant::now();
        let out_row_bytes = target.row_bytes;
        // Without bands, one step makes all rows, strip by strip; with them each strip keeps its ring from one step to
        // the next.
        let step_rows = target.bands.map_or(rows.len(), |_| self.step_rows(&target).min(rows.len()));
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
        let scratch_bytes = self
            .horizontal
            .as_ref()
            .map_or(0, |weights| weights.scratch_bytes())
            .max(self.vertical.as_ref().map_or(0, |_| kernels::vertical_scratch_bytes(self.level)));
        // A narrow strip leaves room for more groups, and the more the ring holds the fewer are moved.
        let capacity = if self.vertical.is_some() { capacity.max(RING_BYTES / stride) } else { capacity };
        let ring_bytes = stride * capacity;
        let (rings, step_bytes) = target.bands.map_or((1, 0), |_| (strips, step_rows * out_row_bytes));
        let mut memory = Buffer::take(rings * ring_bytes + scratch_bytes + step_bytes)?;
        let (ring_memory, rest) = memory.bytes_mut().split_at_mut(rings * ring_bytes);
        let (scratch, step) = rest.split_at_mut(scratch_bytes);
        let first_group = self
            .vertical
            .as_ref()
            .map_or(0, |windows| windows.keep_from(rows.start) / chunk_groups * chunk_groups);
        let phase = self.vertical.as_ref().map_or(0, |windows| windows.phase());
        let source = Rows { phase, ..source };
        let starts = (0..out_pixels).step_by(strip_pixels);
        let mut strips: Vec<Strip> = starts
            .map(|start| {
                let pixels = start..(start + strip_pixels).min(out_pixels);
                Strip { passes: self, source, stride, pixels, held: first_group..first_group }
            })
            .collect();
        let mut make = |first_row: usize, out: &mut [u8]| {
            for (index, strip) in strips.iter_mut().enumerate() {
                let ring = &mut ring_memory[index % rings * ring_bytes..][..ring_bytes];
                match &self.vertical {
                    Some(windows) => {
                        strip.resample_rows(windows, first_row, ring, scratch, out, out_row_bytes);
                    }
                    None => strip.keep_rows(first_row, ring, scratch, out, out_row_bytes),
                }
            }
        };
        match target.bands {
            None => make(rows.start, out),
            Some(bands) => {
                for first_row in rows.clone().step_by(step_rows) {
                    let made = &mut step[..step_rows.min(rows.end - first_row) * out_row_bytes];
                    make(first_row, made);
                    bands.finish_rows(first_row, made, out_row_bytes)?;
                }
            }
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

struct Strip<'a> {
    passes: &'a Passes,
    source: Rows<'a>,
    stride: usize,
    pixels: Range<usize>,
    // The groups of rows that are in its ring.
    held: Range<usize>,
}

impl Strip<'_> {
    // Rows are asked for in order: what the ring holds is of use to the next call.
    fn resample_rows(
        &mut self,
        windows: &Windows,
        first_row: usize,
        ring: &mut [u8],
        scratch: &mut [u8],
        out: &mut [u8],
        out_row_bytes: usize,
    ) {
        let (stride, group_rows) = (self.stride, windows.group_len());
        let chunk_groups = CHUNK_ROWS / group_rows;
        // The ring holds groups `from..to` of the image.
        let Range { start: mut from, end: mut to } = self.held;
        let rows = out.len() / out_row_bytes;
        let mut done = 0;
        while done < rows {
            while to < windows.windows()[first_row + done].end() {
                if (to - from + chunk_groups) * stride > ring.len() {
                    let keep = windows.keep_from(first_row + done).min(to);
                    ring.copy_within((keep - from) * stride..(to - from) * stride, 0);
                    from = keep;
                }
                let at = (to - from) * stride;
                self.make_chunk(group_rows * to, scratch, &mut ring[at..at + chunk_groups * stride]);
                to += chunk_groups;
            }
            let due = &windows.windows()[first_row + done..first_row + rows];
            let due = due.iter().take_while(|window| window.end() <= to).count();
            let range = first_row + done..first_row + done + due;
            let groups = Ring { groups: &ring[..(to - from) * stride], first: from, stride };
            let bytes = &mut out[done * out_row_bytes..(done + due) * out_row_bytes];
            let mut outputs = Outputs { bytes, row_bytes: out_row_bytes, values: self.values() };
            kernels::vertical(self.passes.level, windows, range, &groups, scratch, &mut outputs);
            done += due;
        }
        self.held = from..to;
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
