//! Huffman codes as tables that say with one look what the next one or two symbols of a block are.

use std::hint::black_box;

/// Bits that are looked up at once.
pub const LOOKUP_BITS: u32 = 11;
/// Bits of a code and a value, at most.
pub const LONGEST_BITS: u32 = LONGEST_CODE_BITS + 15;
const ENTRIES: usize = 1 << LOOKUP_BITS;
const LONGEST_CODE_BITS: u32 = 16;

/// A code as the file defines it (ITU-T T.81, annex C).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// How many codes there are of each length in bits; that of length 0 has no meaning.
    pub counts: [u8; 17],
    /// The symbols, by rising length of their codes.
    pub symbols: [u8; 256],
}

/// A symbol, or two that follow each other, with their values: what the next bits stand for.
///
/// One word, so that a shift by the length can begin as soon as the word is there: bits 0..6 are the length in bits,
/// 8..16 and 16..24 how many coefficients further the first and the last value go, 24..32 how many coefficients further
/// the next symbol begins, 32..48 and 48..64 the values. Of one symbol, first and last are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    // Goes too far for any block, and is too long to be paired.
    const ABSENT: Self = Self(64 << 16 | 63);
    const ENDS_BLOCK: u64 = 64 << 24;

    fn one(length: u32, symbol: u8, value: i32, class: Class) -> Self {
        let zeros = u64::from(symbol >> 4);
        let value = u64::from(value as u16);
        // Of the symbols without a value, only the longest run of zeros does not end a block of coefficients.
        if class != Class::Dc && ends_blocks(symbol) {
            return Self(u64::from(length) | Self::ENDS_BLOCK);
        }
        Self(u64::from(length) | zeros << 8 | zeros << 16 | (zeros + 1) << 24 | value << 32 | value << 48)
    }

    // One whose value, or whose number of blocks that end, is not known. Goes too far for any block, so that it is looked at again, and is too long to be paired.
    fn without_value(code_bits: u32, symbol: u8) -> Self {
        let (zeros, value_bits) = (u64::from(symbol >> 4), u64::from(symbol & 15));
        Self(63 | zeros << 8 | 64 << 16 | u64::from(code_bits) << 32 | value_bits << 48)
    }

    // This one and then `other`, if they are at most `most_bits` long; else this one.
    fn and(self, other: Self, most_bits: u32) -> Self {
        const FROM_FIRST: u64 = 0x0000_ffff_ff00_ffff;
        const FROM_LAST: u64 = 0xffff_0000_ffff_003f;
        let steps = self.0 >> 24 & 0xff;
        let both = Self((self.0 & FROM_FIRST) + (other.0 & FROM_LAST) + (steps << 16));
        // What ends the block is never the first of two.
        let too_long = steps & 64;
        if (self.0 & 63) + (other.0 & 63) + too_long <= u64::from(most_bits) { both } else { self }
    }

    /// Bits of all codes and values.
    #[inline(always)]
    pub fn length(self) -> u32 {
        (self.0 & 63) as u32
    }

    /// `bits` without those of this entry.
    #[inline(always)]
    pub fn skip(self, bits: u64) -> u64 {
        bits.wrapping_shl(self.0 as u32)
    }

    /// How far from here the first value goes.
    #[inline(always)]
    pub fn first(self) -> usize {
        (self.0 >> 8) as usize & 0xff
    }

    /// How far from here the last value goes. Over 63 if the next symbol is not in the lookup.
    #[inline(always)]
    pub fn last(self) -> usize {
        (self.0 >> 16) as usize & 0xff
    }

    /// How far from here the next symbol begins. Over 63 if the block ends.
    #[inline(always)]
    pub fn steps(self) -> usize {
        (self.0 >> 24) as usize & 0xff
    }

    /// The first value.
    #[inline(always)]
    pub fn first_value(self) -> i16 {
        (self.0 >> 32) as i16
    }

    /// The last value.
    #[inline(always)]
    pub fn last_value(self) -> i16 {
        (self.0 >> 48) as i16
    }
}

/// Whether the symbol, of a coefficient that is no mean value, has no value and is not the longest run of zeros.
pub fn ends_blocks(symbol: u8) -> bool {
    symbol & 15 == 0 && symbol != 0xf0
}

// The number that `length` bits stand for: those with a leading 0 are the negative ones (T.81, figure F.12).
fn signed(bits: u32, length: u32) -> i32 {
    let is_negative = length > 0 && bits >> (length - 1) == 0;
    bits as i32 - if is_negative { (1 << length) - 1 } else { 0 }
}

/// What the symbols of a code are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Differences of mean values.
    Dc,
    /// All other coefficients of a sequential scan: only these and the next have zeros and ends.
    Ac,
    /// The same in the first of several scans that make a coefficient; more than one block may end.
    AcFirst,
    /// The same in the scans that refine it. Not in pairs, because other bits come between.
    AcRefined,
}

/// A code, ready to decode.
#[derive(Debug)]
pub struct Table {
    entries: [Entry; ENTRIES],
    // For each length: the first 16 bits that are beyond its codes, and what to add to a code to have the number of its
    // symbol.
    beyond: [u32; 17],
    offset: [i32; 17],
    definition: Definition,
    class: Class,
}

impl Table {
    /// `None` if no such code exists.
    pub fn new(definition: &Definition, class: Class) -> Option<Box<Self>> {
        let mut table = Box::new(Self {
            entries: [Entry::ABSENT; ENTRIES],
            beyond: [0; 17],
            offset: [0; 17],
            definition: *definition,
            class,
        });
        let (mut code, mut number) = (0_u32, 0_usize);
        for length in 1..=LONGEST_CODE_BITS {
            let count = u32::from(definition.counts[length as usize]);
            table.offset[length as usize] = number as i32 - code as i32;
            let symbols = definition.symbols.get(number..number + count as usize)?;
            // No code may be all ones.
            if count > 0 && code + count >= 1 << length {
                return None;
            }
            if class == Class::Dc && symbols.iter().any(|&symbol| symbol > 15) {
                return None;
            }
            for (code, &symbol) in (code..).zip(symbols) {
                table.insert(code, length, symbol);
            }
            number += count as usize;
            table.beyond[length as usize] = (code + count) << (LONGEST_CODE_BITS - length);
            code = (code + count) << 1;
        }
        if matches!(class, Class::Ac | Class::AcFirst) {
            table.pair();
        }
        Some(table)
    }

    /// Whether it is the table of this code.
    pub fn is_of(&self, definition: &Definition, class: Class) -> bool {
        self.class == class && self.definition == *definition
    }

    /// Has the lookup come into the cache, all of it at once: decoding would fetch it entry by entry and wait for each.
    pub fn fetch(&self) {
        const LINE_ENTRIES: usize = 64 / size_of::<Entry>();
        black_box(self.entries.iter().step_by(LINE_ENTRIES).fold(0, |all, entry| all ^ entry.0));
    }

    fn insert(&mut self, code: u32, code_bits: u32, symbol: u8) {
        let value_bits = u32::from(symbol & 15);
        let length = code_bits + value_bits;
        if code_bits > LOOKUP_BITS || self.class == Class::AcRefined && value_bits > 1 {
            return;
        }
        let ends_several =
            matches!(self.class, Class::AcFirst | Class::AcRefined) && symbol > 0 && ends_blocks(symbol);
        if length > LOOKUP_BITS || ends_several {
            let unused = LOOKUP_BITS - code_bits;
            let first = (code << unused) as usize;
            self.entries[first..][..1 << unused].fill(Entry::without_value(code_bits, symbol));
            return;
        }
        let copies = 1 << (LOOKUP_BITS - length);
        let first = (code << (LOOKUP_BITS - code_bits)) as usize;
        for (bits, copies) in self.entries[first..].chunks_exact_mut(copies).take(1 << value_bits).enumerate()
        {
            copies.fill(Entry::one(length, symbol, signed(bits as u32, value_bits), self.class));
        }
    }

    // Has the lookup tell two symbols where it can.
    fn pair(&mut self) {
        let single = self.entries;
        for (bits, entry) in self.entries.iter_mut().enumerate() {
            *entry = entry.and(single[bits.wrapping_shl(entry.length()) % ENTRIES], LOOKUP_BITS);
        }
    }

    /// What `bits` begin with, as far as one look tells.
    #[inline(always)]
    pub fn look_up(&self, bits: u64) -> Entry {
        self.entries[(bits >> (64 - LOOKUP_BITS)) as usize]
    }

    /// The one symbol that `bits` begin with, and its value. `None` if there is no such code.
    #[inline]
    pub fn complete(&self, bits: u64) -> Option<Entry> {
        let (code_bits, symbol) = self.symbol(bits)?;
        Some(self.with_value(bits, code_bits, symbol))
    }

    /// Bits of the first code of `bits`, and its symbol. `None` if there is no such code.
    #[inline]
    pub fn symbol(&self, bits: u64) -> Option<(u32, u8)> {
        let entry = self.look_up(bits);
        if entry.last() == 64 && entry.first_value() != 0 {
            let symbol = (entry.first() as u8) << 4 | entry.last_value() as u8 & 15;
            return Some((entry.first_value() as u32 & 63, symbol));
        }
        self.search(bits)
    }

    /// The symbol of a code, and the value of the bits behind that.
    #[inline]
    pub fn with_value(&self, bits: u64, code_bits: u32, symbol: u8) -> Entry {
        let value_bits = u32::from(symbol & 15);
        let value = (bits << code_bits >> 1 >> (63 - value_bits)) as u32;
        Entry::one(code_bits + value_bits, symbol, signed(value, value_bits), self.class)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, bits: u64) -> Option<(u32, u8)> {
        let first = (bits >> (64 - LONGEST_CODE_BITS)) as u32;
        let length = (1..=LONGEST_CODE_BITS).find(|&length| first < self.beyond[length as usize])?;
        let code = (first >> (LONGEST_CODE_BITS - length)) as i32;
        let number = usize::try_from(code + self.offset[length as usize]).ok()?;
        Some((length, *self.definition.symbols.get(number)?))
    }
}
