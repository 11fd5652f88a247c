//! Prefix-code tables of two levels, filled in zlib's way: the same codes are refused, and a code that may be
//! left incomplete refuses the same bits when they come.

/// Root of the table of literals and lengths: one look decides codes of up to so many bits.
pub(super) const LITERAL_ROOT_BITS: u32 = 11;
/// Root of the table of distances.
pub(super) const DISTANCE_ROOT_BITS: u32 = 8;
/// Root of the table of code lengths, whose codes have at most 7 bits.
pub(super) const CODE_LENGTH_ROOT_BITS: u32 = 7;

const LONGEST_CODE_BITS: usize = 15;

/// Lengths of the fixed literal and length code (RFC 1951, 3.2.6).
pub(super) const FIXED_LITERAL_LENGTHS: [u8; 288] = {
    let mut lengths = [8; 288];
    let mut symbol = 144;
    while symbol < 280 {
        lengths[symbol] = if symbol < 256 { 9 } else { 7 };
        symbol += 1;
    }
    lengths
};
/// Lengths of the fixed distance code.
pub(super) const FIXED_DISTANCE_LENGTHS: [u8; 32] = [5; 32];

const LENGTH_BASES: [u16; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
    227, 258,
];
const LENGTH_EXTRA_BITS: [u8; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_BASES: [u16; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
    4097, 6145, 8193, 12289, 16385, 24577,
];

/// One cell of a table.
///
/// Bits 0 to 5: bits to take, extra bits included (of a link: bits of its second table), and nothing else, so that a shift
/// by the word is one by them; 6: link to a second table; 7: literal; 8 to 11: bits of the (first) code alone; 12: end of
/// block; 13: no such code; 14: two literals; 16 to 31: base, symbol, offset of the second table, or two literal bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry(u32);

const LINK: u32 = 1 << 6;
const LITERAL: u32 = 1 << 7;
const END_OF_BLOCK: u32 = 1 << 12;
const INVALID: u32 = 1 << 13;
const TWO_LITERALS: u32 = 1 << 14;

impl Entry {
    const fn literal(byte: usize) -> Self {
        Self(LITERAL | (byte as u32) << 16)
    }

    const fn based(base: u16, extra_bits: u8) -> Self {
        Self((base as u32) << 16 | extra_bits as u32)
    }

    // Adds the bits of the code to an entry that has its extra bits.
    const fn coded(self, code_bits: usize) -> Self {
        Self((self.0 | (code_bits as u32) << 8) + code_bits as u32)
    }

    #[inline(always)]
    pub(super) fn all_bits(self) -> u32 {
        self.0 & 31
    }

    /// `bits` without those of this entry.
    #[inline(always)]
    pub(super) fn skip(self, bits: u64) -> u64 {
        bits.wrapping_shr(self.0)
    }

    #[inline(always)]
    pub(super) fn code_bits(self) -> u32 {
        self.0 >> 8 & 15
    }

    #[inline(always)]
    pub(super) fn base(self) -> usize {
        (self.0 >> 16) as usize
    }

    pub(super) fn symbol(self) -> u32 {
        self.0 >> 16
    }

    #[inline(always)]
    pub(super) fn is_literal(self) -> bool {
        self.0 & LITERAL != 0
    }

    /// 1 or 2.
    #[inline(always)]
    pub(super) fn literals(self) -> usize {
        1 + ((self.0 / TWO_LITERALS) & 1) as usize
    }

    #[inline(always)]
    pub(super) fn literal_bytes(self) -> [u8; 2] {
        ((self.0 >> 16) as u16).to_le_bytes()
    }

    pub(super) fn first_literal(self) -> u8 {
        self.literal_bytes()[0]
    }

    #[inline(always)]
    pub(super) fn is_special(self) -> bool {
        self.0 & (LINK | END_OF_BLOCK | INVALID) != 0
    }

    #[inline(always)]
    pub(super) fn is_link(self) -> bool {
        self.0 & LINK != 0
    }

    #[inline(always)]
    pub(super) fn is_end_of_block(self) -> bool {
        self.0 & END_OF_BLOCK != 0
    }

    #[inline(always)]
    pub(super) fn is_invalid(self) -> bool {
        self.0 & INVALID != 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    CodeLengths,
    Literals,
    Distances,
}

/// A decoding table: a root of `1 << root_bits` entries, second tables behind it.
pub(super) struct Table {
    root_bits: u32,
    entries: Vec<Entry>,
}

impl Table {
    pub(super) fn new(root_bits: u32) -> Self {
        Self { root_bits, entries: vec![Entry::default(); 1 << root_bits] }
    }

    /// The entry of the code at the low end of `hold`.
    #[inline(always)]
    pub(super) fn find(&self, hold: u64) -> Entry {
        let entry = self.entries[(hold & ((1 << self.root_bits) - 1)) as usize];
        if entry.is_link() { self.follow(entry, hold) } else { entry }
    }

    /// The root, for a reader that knows its size.
    #[inline(always)]
    pub(super) fn root<const ENTRIES: usize>(&self) -> Option<&[Entry; ENTRIES]> {
        self.entries.first_chunk()
    }

    /// The entry behind a link.
    #[inline(always)]
    pub(super) fn follow(&self, link: Entry, hold: u64) -> Entry {
        let index = hold >> self.root_bits & ((1 << link.all_bits()) - 1);
        self.entries[link.base() + index as usize]
    }

    pub(super) fn build_code_lengths(&mut self, lengths: &[u8]) -> bool {
        self.build(lengths, Kind::CodeLengths)
    }

    pub(super) fn build_literals(&mut self, lengths: &[u8]) -> bool {
        let valid = self.build(lengths, Kind::Literals);
        if valid {
            self.pair_literals();
        }
        valid
    }

    pub(super) fn build_distances(&mut self, lengths: &[u8]) -> bool {
        self.build(lengths, Kind::Distances)
    }

    /// Whether zlib takes these lengths. It takes a complete code; one of a single code of one bit, except for code
    /// lengths; and one of no codes at all, which fails when it is used (code lengths then read as zeros).
    fn build(&mut self, lengths: &[u8], kind: Kind) -> bool {
        let mut counts = [0_u16; LONGEST_CODE_BITS + 1];
        for &length in lengths {
            counts[usize::from(length)] += 1;
        }
        counts[0] = 0;
        let longest = (1..=LONGEST_CODE_BITS).rev().find(|&bits| counts[bits] > 0).unwrap_or(0);
        let mut left = 1_i32;
        for &count in &counts[1..] {
            left = (left << 1) - i32::from(count);
            if left < 0 {
                return false;
            }
        }
        if left > 0 && longest != 0 && (kind == Kind::CodeLengths || longest != 1) {
            return false;
        }
        let root_size = 1_usize << self.root_bits;
        self.entries.truncate(root_size);
        if left > 0 {
            let unused = if kind == Kind::CodeLengths { Entry::default() } else { Entry(INVALID) };
            self.entries.fill(unused.coded(1));
        }
        let mut next_codes = [0_u16; LONGEST_CODE_BITS + 1];
        for bits in 1..LONGEST_CODE_BITS {
            next_codes[bits + 1] = (next_codes[bits] + counts[bits]) << 1;
        }
        if longest > self.root_bits as usize {
            self.link_second_tables(lengths, next_codes);
        }
        for (symbol, &length) in lengths.iter().enumerate().filter(|&(_, &length)| length > 0) {
            let length = usize::from(length);
            let code = reversed(next_codes[length], length);
            next_codes[length] += 1;
            let entry = entry(kind, symbol).coded(length);
            if length <= self.root_bits as usize {
                self.entries[code..root_size].iter_mut().step_by(1 << length).for_each(|cell| *cell = entry);
            } else {
                let link = self.entries[code & (root_size - 1)];
                let second = &mut self.entries[link.base()..link.base() + (1 << link.all_bits())];
                let step = 1 << (length - self.root_bits as usize);
                second[code >> self.root_bits..].iter_mut().step_by(step).for_each(|cell| *cell = entry);
            }
        }
        true
    }

    fn link_second_tables(&mut self, lengths: &[u8], mut next_codes: [u16; LONGEST_CODE_BITS + 1]) {
        let root_bits = self.root_bits as usize;
        let mut second_bits = [0_u8; 1 << LITERAL_ROOT_BITS];
        for &length in lengths.iter().filter(|&&length| length > 0) {
            let length = usize::from(length);
            let code = reversed(next_codes[length], length);
            next_codes[length] += 1;
            if length > root_bits {
                let bits = &mut second_bits[code & ((1 << root_bits) - 1)];
                *bits = (*bits).max((length - root_bits) as u8);
            }
        }
        for (index, &bits) in second_bits.iter().enumerate().filter(|&(_, &bits)| bits > 0) {
            let offset = self.entries.len();
            self.entries[index] = Entry(LINK | (offset as u32) << 16 | u32::from(bits));
            self.entries.resize(offset + (1 << bits), Entry::default());
        }
    }

    // Where the bits of one look hold two literals, lets the look yield both. Selects, because a branch on the sum of
    // two code lengths would be guessed wrong for every third entry of every block.
    fn pair_literals(&mut self) {
        let Some(root) = self.entries.first_chunk_mut::<{ 1 << LITERAL_ROOT_BITS }>() else { return };
        // Downwards, because the second literal is looked up at a smaller index, which must still be single.
        for index in (0..root.len()).rev() {
            let first = root[index];
            let second = root[index >> first.code_bits()];
            let bits = first.code_bits() + second.code_bits();
            let bytes = (first.0 >> 16 & 0xff) | (second.0 >> 16 & 0xff) << 8;
            let pair = LITERAL | TWO_LITERALS | first.code_bits() << 8 | bits & 31 | bytes << 16;
            let fits = (first.0 & second.0 & LITERAL != 0) & (bits <= LITERAL_ROOT_BITS);
            root[index] = Entry(if fits { pair } else { first.0 });
        }
    }
}

fn entry(kind: Kind, symbol: usize) -> Entry {
    match (kind, symbol) {
        (Kind::CodeLengths, _) => Entry::based(symbol as u16, 0),
        (Kind::Literals, 0..=255) => Entry::literal(symbol),
        (Kind::Literals, 256) => Entry(END_OF_BLOCK),
        (Kind::Literals, 257..=285) => {
            Entry::based(LENGTH_BASES[symbol - 257], LENGTH_EXTRA_BITS[symbol - 257])
        }
        (Kind::Distances, 0..=29) => {
            Entry::based(DISTANCE_BASES[symbol], (symbol as u8 / 2).saturating_sub(1))
        }
        _ => Entry(INVALID),
    }
}

fn reversed(code: u16, bits: usize) -> usize {
    usize::from(code.reverse_bits() >> (16 - bits))
}
