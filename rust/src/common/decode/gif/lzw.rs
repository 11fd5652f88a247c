//! LZW as in GIF, with the verdicts of Pillow's decoder.

use super::broken;
use crate::error::Result;

/// Pillow's `MAXBLOCK`: the file is read in pieces of this size.
const READ_BYTES: usize = 64 << 10;
const LONGEST_CODE_BITS: u32 = 12;
const MOST_CODES: usize = 1 << LONGEST_CODE_BITS;

const COPY_BYTES: usize = 16;

/// Where among the output the string of a code was written first: every string is the one before it and the first
/// value of the one after that, which lie side by side.
#[derive(Clone, Copy, Default)]
struct Place {
    start: usize,
    length: usize,
}

/// Decodes the blocks at the start of `data` until `indices` is full.
///
/// # Errors
/// If the data ends before, or a code is impossible.
pub(super) fn decode(data: &[u8], code_bits: u8, indices: &mut [u8]) -> Result<()> {
    if u32::from(code_bits) > LONGEST_CODE_BITS {
        return Err(broken("the code size is impossible"));
    }
    let clear = 1_usize << code_bits;
    let end = clear + 1;
    let mut bits = Bits { data, at: 0, read: READ_BYTES, block: 0, hold: 0, count: 0 };
    let mut table = vec![Place::default(); MOST_CODES];
    let mut size = u32::from(code_bits) + 1;
    let mut next = clear + 2;
    let mut previous: Option<(usize, Place)> = None;
    let mut filled = 0;
    while filled < indices.len() {
        let code = bits.take(size)?;
        if code == clear {
            if previous.is_some() {
                size = u32::from(code_bits) + 1;
                next = clear + 2;
                previous = None;
            }
            continue;
        }
        if code == end {
            // Pillow then reads on, if its last read left anything of the file, and goes on decoding.
            bits.read_more()?;
            continue;
        }
        if code > if previous.is_some() { next } else { clear } {
            return Err(broken("a code is impossible"));
        }
        let mut place = Place { start: filled, length: 1 };
        if let Some((before, string)) = previous {
            // The string before and its own first value: what this code is about to stand for.
            let defined = Place { start: string.start, length: string.length + 1 };
            if code == next {
                // Only codes of 13 bits, which Pillow allows without having a table for them, lie outside.
                if before >= MOST_CODES {
                    return Err(broken("a code is impossible"));
                }
                place.length = repeat(indices, filled, defined);
            } else if code > clear {
                place.length = repeat(indices, filled, table[code]);
            }
            if next < MOST_CODES {
                table[next] = defined;
                if next == (1 << size) - 1 && size < LONGEST_CODE_BITS {
                    size += 1;
                }
                next += 1;
            }
        }
        if code < clear {
            indices[filled] = code as u8;
        }
        filled += place.length;
        previous = Some((code, place));
    }
    Ok(())
}

/// Writes the values of `place` once more, as many as there is room for; how many that was.
fn repeat(indices: &mut [u8], filled: usize, place: Place) -> usize {
    let Place { start, length } = place;
    if length <= COPY_BYTES && start + COPY_BYTES <= filled && filled + COPY_BYTES <= indices.len() {
        indices.copy_within(start..start + COPY_BYTES, filled);
        return length;
    }
    let length = length.min(indices.len() - filled);
    // One value may be its own source, when a code is used while it is being defined.
    for index in 0..length {
        indices[filled + index] = indices[start + index];
    }
    length
}

/// Codes out of length-prefixed blocks.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// How much of `data` Pillow has read from the file so far.
    read: usize,
    /// Bytes left in the current block.
    block: usize,
    hold: u32,
    count: u32,
}

impl Bits<'_> {
    fn take(&mut self, size: u32) -> Result<usize> {
        while self.count < size {
            if self.block > 0 {
                self.hold |= u32::from(self.data[self.at]) << self.count;
                self.at += 1;
                self.block -= 1;
                self.count += 8;
                continue;
            }
            // A block is not begun before all of it is there.
            let end = self.at + 1 + self.data.get(self.at).map_or(0, |length| usize::from(*length));
            if end > self.read.min(self.data.len()) {
                self.read_more()?;
            } else {
                self.block = end - self.at - 1;
                self.at += 1;
            }
        }
        let code = self.hold & ((1 << size) - 1);
        self.hold >>= size;
        self.count -= size;
        Ok(code as usize)
    }

    fn read_more(&mut self) -> Result<()> {
        if self.read >= self.data.len() {
            return Err(broken("the frame's data is truncated"));
        }
        self.read += READ_BYTES;
        Ok(())
    }
}
