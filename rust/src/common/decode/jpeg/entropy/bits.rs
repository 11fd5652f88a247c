//! Bits of a segment, first bit first.

use super::code::Entry;

/// Bytes that a block is read from: 64 symbols of up to 16 bits of code and 15 of value, and what a refill reads ahead.
pub const WINDOW_BYTES: usize = 256 + 8;

/// The next bits, filled from a window of bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bits {
    // The first `count` are counted; those after them are the next bits as well, or zeros.
    bits: u64,
    count: u32,
}

impl Bits {
    /// At least this many are there after a refill.
    pub const REFILLED: u32 = 56;

    /// The next bits, the first of them on top.
    pub fn peek(self) -> u64 {
        self.bits
    }

    /// How many are there.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Takes the code and the value of an entry away.
    #[inline(always)]
    pub fn take(&mut self, entry: Entry) {
        self.bits = entry.skip(self.bits);
        self.count = self.count.wrapping_sub(entry.length());
    }

    /// Takes bits away, no more than there are.
    #[inline(always)]
    pub fn drop(&mut self, count: u32) {
        self.bits = self.bits.wrapping_shl(count);
        self.count = self.count.wrapping_sub(count);
    }

    /// Adds bits from the byte `at` on, and moves `at` behind what was added.
    #[inline(always)]
    pub fn refill(&mut self, window: &[u8; WINDOW_BYTES], at: &mut usize) {
        let start = *at & 255;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&window[start..start + 8]);
        self.bits |= u64::from_be_bytes(bytes).wrapping_shr(self.count);
        *at += ((63 - self.count) >> 3) as usize;
        self.count |= Self::REFILLED;
    }
}
