//! How rows lie before, between and after the passes: what the engine hands to a kernel.

use std::ops::Range;

/// Rows that the horizontal pass takes at a time.
pub const CHUNK_ROWS: usize = 16;
/// The same in quads.
pub const CHUNK_QUADS: usize = CHUNK_ROWS / 4;

/// Rows of an image, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// All rows.
    pub bytes: &'a [u8],
    /// Length of one.
    pub row_bytes: usize,
    /// How many.
    pub count: usize,
    /// How many rows before the first one index 0 stands for.
    pub phase: usize,
}

impl<'a> Rows<'a> {
    /// Everything from the start of row `index` on; the first and last rows stand for those beyond them.
    pub fn tail_from(&self, index: usize) -> &'a [u8] {
        &self.bytes[index.saturating_sub(self.phase).min(self.count - 1) * self.row_bytes..]
    }

    /// Whether each of these rows lies `row_bytes` behind the one before.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AVX2"))]
    pub fn are_evenly_apart(&self, rows: Range<usize>) -> bool {
        rows.start >= self.phase && rows.end <= self.phase + self.count
    }

    /// Bytes `values` of row `index`; the first and last rows stand for those beyond them.
    pub fn values(&self, index: usize, values: &Range<usize>) -> &'a [u8] {
        &self.tail_from(index)[values.clone()]
    }
}

/// Where a chunk of rows goes: a run of lanes for each group of rows, `stride` bytes apart.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// The memory; what lies past the last column asked for may be overwritten.
    pub groups: &'a mut [u8],
    /// Distance in bytes.
    pub stride: usize,
}

/// Groups of rows between the passes: a run of lanes for each, `stride` bytes apart.
#[derive(Debug)]
pub struct Ring<'a> {
    /// The memory.
    pub groups: &'a [u8],
    /// Which group of the image comes first.
    pub first: usize,
    /// Distance in bytes.
    pub stride: usize,
}

/// Where rows of a strip go.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// The rows, from the first one on, in their full width.
    pub bytes: &'a mut [u8],
    /// Length of one.
    pub row_bytes: usize,
    /// Which bytes of a row belong to the strip.
    pub values: Range<usize>,
}

impl Outputs<'_> {
    /// The strip's bytes of row `index`.
    pub fn row(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[index * self.row_bytes..][self.values.clone()]
    }
}
