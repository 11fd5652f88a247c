//! The image data in the pieces in which Pillow hands it to its decoder.

use super::chunks::{Call, Stream, Tile};
use crate::error::Result;

/// Pillow's `MAXBLOCK`.
const MOST_BLOCK_BYTES: usize = 64 << 10;

/// Reads the data chunks that follow each other.
#[derive(Clone)]
pub(super) struct Blocks<'a> {
    pub(super) stream: Stream<'a>,
    /// Bytes of the current chunk that are still to be read.
    pub(super) left: usize,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(mut stream: Stream<'a>, tile: &Tile) -> Self {
        stream.at = tile.at;
        Self { stream, left: tile.length }
    }

    /// The next block as Pillow reads it; empty at the end of the data.
    pub(super) fn next(&mut self) -> Result<&'a [u8]> {
        while self.left == 0 {
            self.stream.read(4);
            let chunk = self.stream.next()?;
            match &chunk.name {
                b"IDAT" | b"DDAT" => self.left = chunk.length,
                b"fdAT" => {
                    let (Call::Read(_) | Call::Stop | Call::Unknown) = self.stream.call(chunk)?;
                    self.left = chunk.length - 4;
                }
                _ => {
                    self.stream.push(chunk);
                    return Ok(&[]);
                }
            }
        }
        let length = self.left.min(MOST_BLOCK_BYTES);
        self.left -= length;
        Ok(self.stream.read(length))
    }

    /// What is left of the current chunk or else the next one, whole, if all is in order.
    pub(super) fn next_chunk(&mut self) -> Option<&'a [u8]> {
        while self.left == 0 {
            self.stream.read(4);
            let chunk = self.stream.next().ok()?;
            if &chunk.name != b"IDAT" {
                return None;
            }
            self.left = chunk.length;
        }
        let bytes = self.stream.read_exact(std::mem::take(&mut self.left)).ok()?;
        Some(bytes)
    }
}
