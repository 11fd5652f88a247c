//! LZW as in GIF, with the verdicts of Pillow's decoder.

use super::broken;
use crate::error::Result;

/// Pillow's `MAXBLOCK`: the file is read in pieces of this size.
const READ_BYTES: usize = 64 << 10;
const LONGEST_CODE_BITS: u32 = 12;
const MOST_CODES: usize = 1 << LONGEST_CODE_BITS;

#[derive(Clone, Copy, Default)]
struct Code {
    prefix: u16,
    last: u8,
    first: u8,
    length: u16,
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
    let mut table = vec![Code::default(); MOST_CODES];
    for (value, code) in table.iter_mut().enumerate().take(clear) {
        *code = Code { prefix: 0, last: value as u8, first: value as u8, length: 1 };
    }
    let mut size = u32::from(code_bits) + 1;
    let mut next = clear + 2;
    let mut previous: Option<usize> = None;
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
        let Some(before) = previous else {
            if code > clear {
                return Err(broken("the first code is impossible"));
            }
            indices[filled] = code as u8;
            filled += 1;
            previous = Some(code);
            continue;
        };
        // Only codes of 13 bits, which Pillow allows without having a table for them, lie outside.
        let known = if code == next { before } else { code };
        let Some(&string) = table.get(known).filter(|_| code <= next) else {
            return Err(broken("a code is impossible"));
        };
        filled += write_string(&table, known, &mut indices[filled..]);
        if code == next && filled < indices.len() {
            indices[filled] = string.first;
            filled += 1;
        }
        if next < MOST_CODES {
            let Code { first, length, .. } = table[before];
            table[next] = Code { prefix: before as u16, last: string.first, first, length: length + 1 };
            if next == (1 << size) - 1 && size < LONGEST_CODE_BITS {
                size += 1;
            }
            next += 1;
        }
        previous = Some(code);
    }
    Ok(())
}

/// Writes the string of `code`, or as much of its start as there is room for; how much that was.
fn write_string(table: &[Code], code: usize, room: &mut [u8]) -> usize {
    let length = usize::from(table[code].length);
    let mut at = code;
    for place in (0..length).rev() {
        if let Some(value) = room.get_mut(place) {
            *value = table[at].last;
        }
        at = table[at].prefix.into();
    }
    length.min(room.len())
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
