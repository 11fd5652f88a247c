//! The samples of a row of units, component by component, and the one row above them that upsampling needs.

use super::BLOCK_PX;
use super::kernels::{Factors, SLACK_SAMPLES};

// Before the first sample of a row, so that there is one, and rows start with a cache line.
const MARGIN: usize = 64;

/// The samples of a component. Row 0 is the last one of the units before.
#[derive(Debug)]
pub struct Plane {
    /// Its first byte in the memory of all.
    pub start: usize,
    /// Blocks across in a unit.
    pub blocks_across: usize,
    /// Blocks down in a unit.
    pub blocks_down: usize,
    /// Samples across in the picture.
    pub width: usize,
    /// Samples down in the picture.
    pub height: usize,
    /// Bytes from row to row.
    pub stride: usize,
    /// Factors of the coefficients.
    pub factors: Factors,
}

impl Plane {
    /// Bytes from row to row, for rows of `samples` that are written.
    pub fn stride(samples: usize) -> usize {
        // One more of a component's next to that sample is read.
        MARGIN + (samples + SLACK_SAMPLES + 2).next_multiple_of(MARGIN)
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> usize {
        (1 + self.rows()) * self.stride
    }

    fn rows(&self) -> usize {
        self.blocks_down * BLOCK_PX
    }

    fn at(&self, slot: usize, column: usize) -> usize {
        self.start + slot * self.stride + MARGIN + column
    }

    /// Which of the rows in memory is row `row` of the picture, if `before` rows of units came before those in memory.
    pub fn slot(&self, row: usize, before: usize) -> usize {
        row + 1 - before * self.rows()
    }

    /// The samples of a row in memory from one before the first on.
    pub fn row_from_before<'m>(&self, memory: &'m [u8], slot: usize) -> &'m [u8] {
        &memory[self.at(slot, 0) - 1..self.start + (slot + 1) * self.stride]
    }

    /// The samples of a row in memory from `column` on.
    pub fn row_from<'m>(&self, memory: &'m [u8], slot: usize, column: usize) -> &'m [u8] {
        &memory[self.at(slot, column)..self.start + (slot + 1) * self.stride]
    }

    /// All samples from `column` of a row in memory on, to write.
    pub fn rows_from<'m>(&self, memory: &'m mut [u8], slot: usize, column: usize) -> &'m mut [u8] {
        &mut memory[self.at(slot, column)..self.start + self.bytes()]
    }

    /// Makes the last row in memory the first.
    pub fn keep_last_row(&self, memory: &mut [u8]) {
        let last = self.start + self.rows() * self.stride;
        memory.copy_within(last..last + self.stride, self.start);
    }

    /// Repeats the first and the last sample of each row beyond its ends.
    pub fn extend_rows(&self, memory: &mut [u8]) {
        for slot in 1..=self.rows() {
            let (first, behind) = (self.at(slot, 0), self.at(slot, self.width));
            memory[first - 1] = memory[first];
            memory[behind] = memory[behind - 1];
        }
    }
}
