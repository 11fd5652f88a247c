//! The input of libjpeg, shown to it the way Pillow does.

use super::Stop;
use super::ffi::{Decompressor, Status};
use crate::error::Result;

/// Pillow's `ImageFile.MAXBLOCK`.
const BLOCK_BYTES: usize = 65_536;

/// Encoders write up to a few dozen. Pillow has no such limit, and can be kept busy for hours by a small file.
pub const MOST_SCANS: u16 = 256;

/// A file and how much of it libjpeg may see.
pub struct Source<'a> {
    /// The decompressor that reads it.
    pub decompressor: Decompressor<'a>,
    data: &'a [u8],
    visible: usize,
    block: usize,
}

impl<'a> Source<'a> {
    /// Shows the whole file at once.
    ///
    /// # Errors
    /// No memory.
    pub fn whole(data: &'a [u8]) -> Result<Self> {
        Self::new(data, data.len())
    }

    /// Shows another block each time libjpeg asks for more.
    ///
    /// # Errors
    /// No memory.
    pub fn in_blocks(data: &'a [u8]) -> Result<Self> {
        Self::new(data, BLOCK_BYTES)
    }

    fn new(data: &'a [u8], block: usize) -> Result<Self> {
        let mut source =
            Self { decompressor: Decompressor::new(MOST_SCANS.into())?, data, visible: 0, block };
        source.show(block.min(data.len()));
        Ok(source)
    }

    /// From here on shows no more than Pillow would have shown by now.
    pub fn cut_into_blocks(&mut self) {
        let consumed = self.visible - self.decompressor.unread();
        self.block = BLOCK_BYTES;
        // A block that was consumed to its last byte is not followed by the next one until libjpeg asks.
        let visible = consumed.div_ceil(BLOCK_BYTES).max(1) * BLOCK_BYTES;
        let visible = visible.min(self.data.len());
        self.decompressor.show(&self.data[consumed..visible]);
        self.visible = visible;
    }

    /// Runs `step` until it is done, showing more of the file whenever it is suspended.
    pub fn run(
        &mut self,
        mut step: impl FnMut(&mut Decompressor<'a>) -> Status,
    ) -> std::result::Result<(), Stop> {
        loop {
            while self.decompressor.is_skipping() {
                self.show_more()?;
            }
            match step(&mut self.decompressor) {
                Status::Done => return Ok(()),
                Status::Broken => return Err(Stop::Broken),
                Status::TooManyScans => return Err(Stop::TooManyScans),
                Status::Suspended => self.show_more()?,
            }
        }
    }

    fn show_more(&mut self) -> std::result::Result<(), Stop> {
        if self.visible == self.data.len() {
            return Err(Stop::Truncated);
        }
        let visible = self.visible.saturating_add(self.block).min(self.data.len());
        self.show(visible);
        Ok(())
    }

    fn show(&mut self, visible: usize) {
        let unread = self.decompressor.unread();
        self.decompressor.show(&self.data[self.visible - unread..visible]);
        self.visible = visible;
    }
}
