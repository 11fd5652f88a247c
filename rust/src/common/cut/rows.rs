//! Rows of a picture on its canvas: which blocks they cover, and what is around them.

use super::{Block, Order};
use crate::common::normalise::CHANNELS;

/// Where a block's pixels are: RGB bytes, how far apart its rows are, and its first byte.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// From before the first byte on.
    pub pixels: &'a [u8],
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// Index of the first byte.
    pub start: usize,
}

/// Rows of an RGB picture, and where they stand on its canvas.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// From the first pixel of the first row to the last pixel of the last one.
    pub bytes: &'a [u8],
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// Pixels of a row.
    pub width: usize,
    /// How many rows.
    pub height: usize,
    /// Columns of the canvas on the left of them.
    pub left: usize,
    /// Rows of the canvas above them.
    pub top: usize,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn covers(&self, x: usize, y: usize, columns: usize, rows: usize) -> bool {
        x >= self.left
            && y >= self.top
            && x + columns <= self.left + self.width
            && y + rows <= self.top + self.height
    }

    pub(super) fn meets(&self, x: usize, y: usize, columns: usize, rows: usize) -> bool {
        x < self.left + self.width
            && y < self.top + self.height
            && x + columns > self.left
            && y + rows > self.top
    }

    // The columns of `x..x + columns` that the picture covers, counted from `x`.
    fn columns(&self, x: usize, columns: usize) -> std::ops::Range<usize> {
        let start = self.left.saturating_sub(x).min(columns);
        start..(self.left + self.width).saturating_sub(x).clamp(start, columns)
    }

    // The index of the picture's row at row `y` of the canvas.
    fn row(&self, y: usize) -> Option<usize> {
        y.checked_sub(self.top).filter(|&row| row < self.height)
    }

    // Where the pixels of a block are: in the picture, or in `patch` if it reaches beyond.
    #[inline]
    pub(super) fn source<'s>(
        &self,
        x: usize,
        y: usize,
        block: &Block,
        colour: [u8; CHANNELS],
        patch: &'s mut Vec<u8>,
    ) -> Source<'s>
    where
        'a: 's,
    {
        if self.covers(x, y, block.columns, block.rows) {
            let start = (y - self.top) * self.row_bytes + (x - self.left) * CHANNELS;
            return Source { pixels: self.bytes, row_bytes: self.row_bytes, start };
        }
        self.patched(x, y, block, colour, patch)
    }

    #[cold]
    fn patched<'s>(
        &self,
        x: usize,
        y: usize,
        block: &Block,
        colour: [u8; CHANNELS],
        patch: &'s mut Vec<u8>,
    ) -> Source<'s> {
        let &Self { bytes, row_bytes, left, .. } = self;
        let patch_bytes = block.columns * CHANNELS;
        patch.resize(block.rows * patch_bytes, 0);
        fill(patch, colour);
        let columns = self.columns(x, block.columns);
        for (at, line) in patch.chunks_exact_mut(patch_bytes).enumerate() {
            let Some(row) = self.row(y + at).filter(|_| !columns.is_empty()) else { continue };
            let line = &mut line[columns.start * CHANNELS..columns.end * CHANNELS];
            let start = row * row_bytes + (x + columns.start - left) * CHANNELS;
            line.copy_from_slice(&bytes[start..start + line.len()]);
        }
        Source { pixels: patch, row_bytes: patch_bytes, start: 0 }
    }

    // Puts `values` where the picture does not cover a block.
    pub(super) fn put_around<T: Copy>(
        &self,
        x: usize,
        y: usize,
        block: &Block,
        values: [T; CHANNELS],
        out: &mut [T],
    ) {
        if block.order != Order::Interleaved {
            let plane = block.rows * block.columns;
            let run = block.run_values();
            for (at, out) in out.chunks_exact_mut(plane).enumerate() {
                self.put_around_plane(x, y, block.columns, values[at * plane / run % CHANNELS], out);
            }
            return;
        }
        let columns = self.columns(x, block.columns);
        let mut below = block.rows;
        while below > 0 && self.row(y + below - 1).is_none() {
            below -= 1;
        }
        let (inside, outside) = out.split_at_mut(below * block.columns * CHANNELS);
        for (at, line) in inside.chunks_exact_mut(block.columns * CHANNELS).enumerate() {
            if self.row(y + at).is_none() {
                fill(line, values);
            } else {
                fill(&mut line[..columns.start * CHANNELS], values);
                fill(&mut line[columns.end * CHANNELS..], values);
            }
        }
        fill(outside, values);
    }

    pub(super) fn put_around_plane<T: Copy>(
        &self,
        x: usize,
        y: usize,
        columns: usize,
        value: T,
        out: &mut [T],
    ) {
        let covered = self.columns(x, columns);
        for (at, line) in out.chunks_exact_mut(columns).enumerate() {
            if self.row(y + at).is_none() {
                line.fill(value);
            } else {
                line[..covered.start].fill(value);
                line[covered.end..].fill(value);
            }
        }
    }
}

// Doubles what is filled already, so that it runs at the speed of a copy.
fn fill<T: Copy>(out: &mut [T], pixel: [T; CHANNELS]) {
    let Some(first) = out.first_chunk_mut() else { return };
    *first = pixel;
    let mut filled = CHANNELS;
    while filled < out.len() {
        let len = filled.min(out.len() - filled);
        out.copy_within(..len, filled);
        filled += len;
    }
}
