//! DEFLATE in a zlib wrapper (RFC 1950, 1951), resumable, with zlib's own verdicts.
//!
//! Pillow inflates one picture row a call and looks at the verdict of each call. What it makes of a damaged stream
//! therefore depends on how far `inflate` of zlib reads ahead once its output is full, and on the block of
//! input it has at that moment. So this decoder stops exactly where zlib stops: it takes no byte of input
//! that the next step does not need, goes on while steps need no output, and judges codes in zlib's order.

#[cfg(target_arch = "x86_64")]
mod bmi2;
mod fast;
mod headers;
mod table;

use libdeflater::Adler32;

use crate::common::simd::Level;

use table::{CODE_LENGTH_ROOT_BITS, DISTANCE_ROOT_BITS, Entry, LITERAL_ROOT_BITS, Table};

/// Bytes that [`Inflate::run`] needs to see before the output position, as far as there was output.
pub(crate) const WINDOW_BYTES: usize = 32 << 10;

/// How a call of [`Inflate::run`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// The input is used up, or the output is full.
    Ok,
    /// The stream has ended, and its checksum is right.
    End,
    /// A preset dictionary is asked for. Nothing more will come out.
    NeedDictionary,
    /// The stream is broken. Nothing more will come out.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Header,
    DictionaryId,
    Dictionary,
    BlockType,
    StoredLength,
    Stored,
    TableSizes,
    CodeLengthLengths,
    CodeLengths,
    Symbol,
    Distance,
    Literal,
    Match,
    Checksum,
    Done,
    Broken,
}

const MOST_LENGTHS: usize = 286 + 30;

/// The translation for a level.
fn turns_for(level: Level) -> fast::Turns {
    #[cfg(target_arch = "x86_64")]
    if level != Level::Scalar && std::arch::is_x86_feature_detected!("bmi2") {
        return bmi2::turns;
    }
    let _ = level;
    fast::turns
}

/// The state of a stream between two calls.
pub(crate) struct Inflate {
    turns: fast::Turns,
    step: Step,
    last_block: bool,
    hold: u64,
    bits: u32,
    total_out: u64,
    checksum: Adler32,
    /// A literal byte to write, or what is left of a match or a stored block.
    length: usize,
    distance: usize,
    literal_count: usize,
    distance_count: usize,
    code_length_count: usize,
    filled: usize,
    lengths: [u8; MOST_LENGTHS],
    code_lengths: Table,
    literals: Table,
    distances: Table,
}

/// Input of one call and the place reached in it.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Inflate {
    pub(crate) fn new(level: Level) -> Self {
        Self {
            turns: turns_for(level),
            step: Step::Header,
            last_block: false,
            hold: 0,
            bits: 0,
            total_out: 0,
            checksum: Adler32::new(),
            length: 0,
            distance: 0,
            literal_count: 0,
            distance_count: 0,
            code_length_count: 0,
            filled: 0,
            lengths: [0; MOST_LENGTHS],
            code_lengths: Table::new(CODE_LENGTH_ROOT_BITS),
            literals: Table::new(LITERAL_ROOT_BITS),
            distances: Table::new(DISTANCE_ROOT_BITS),
        }
    }

    /// Decodes `input` into `out[*position..limit]` and returns how many bytes of input it took.
    ///
    /// `out[..*position]` is what was decoded before, at least the last [`WINDOW_BYTES`] of it. Bytes of `out` beyond
    /// the final position, and beyond `limit`, may be overwritten with anything.
    pub(crate) fn run(
        &mut self,
        input: &[u8],
        out: &mut [u8],
        position: &mut usize,
        limit: usize,
    ) -> (usize, Status) {
        let mut input = Input { bytes: input, at: 0 };
        let start = *position;
        let mut summed = start;
        loop {
            if self.step == Step::Symbol {
                (self.turns)(self, &mut input, out, position, limit, start);
            }
            if self.step == Step::Checksum {
                self.checksum.update(&out[summed..*position]);
                summed = *position;
            }
            if !self.advance(&mut input, out, position, limit, start) {
                break;
            }
        }
        if !matches!(self.step, Step::Done | Step::Broken) {
            self.checksum.update(&out[summed..*position]);
        }
        self.total_out += (*position - start) as u64;
        let status = match self.step {
            Step::Done => Status::End,
            Step::Broken => Status::Broken,
            Step::Dictionary => Status::NeedDictionary,
            _ => Status::Ok,
        };
        (input.at, status)
    }

    /// One step of the format; `false` if it can go no further in this call.
    fn advance(
        &mut self,
        input: &mut Input,
        out: &mut [u8],
        position: &mut usize,
        limit: usize,
        start: usize,
    ) -> bool {
        match self.step {
            Step::Header => return self.header(input),
            Step::DictionaryId => {
                if !self.need(input, 32) {
                    return false;
                }
                self.drop_bits(32);
                self.step = Step::Dictionary;
            }
            Step::BlockType => return self.block_type(input),
            Step::StoredLength => {
                if !self.need(input, 32) {
                    return false;
                }
                let (length, complement) = (self.peek(16), self.peek(32) >> 16);
                if length != complement ^ 0xffff {
                    return self.broken();
                }
                self.drop_bits(32);
                self.length = length as usize;
                self.step = Step::Stored;
            }
            Step::Stored => {
                if self.length > 0 {
                    let count = self.length.min(input.bytes.len() - input.at).min(limit - *position);
                    if count == 0 {
                        return false;
                    }
                    out[*position..*position + count]
                        .copy_from_slice(&input.bytes[input.at..input.at + count]);
                    *position += count;
                    input.at += count;
                    self.length -= count;
                } else {
                    self.step = Step::BlockType;
                }
            }
            Step::TableSizes => return self.table_sizes(input),
            Step::CodeLengthLengths => return self.code_length_lengths(input),
            Step::CodeLengths => return self.code_lengths(input),
            Step::Symbol => return self.symbol(input),
            Step::Distance => return self.distance(input),
            Step::Literal => {
                if *position == limit {
                    return false;
                }
                out[*position] = self.length as u8;
                *position += 1;
                self.step = Step::Symbol;
            }
            Step::Match => {
                if *position == limit {
                    return false;
                }
                if self.distance as u64 > self.total_out + (*position - start) as u64 {
                    return self.broken();
                }
                let count = self.length.min(limit - *position);
                fast::copy_match(out, *position, self.distance, count);
                *position += count;
                self.length -= count;
                if self.length == 0 {
                    self.step = Step::Symbol;
                }
            }
            Step::Checksum => {
                if !self.need(input, 32) {
                    return false;
                }
                if (self.peek(32) as u32).swap_bytes() != self.checksum.sum() {
                    return self.broken();
                }
                self.drop_bits(32);
                self.step = Step::Done;
            }
            Step::Dictionary | Step::Done | Step::Broken => return false,
        }
        true
    }

    fn symbol(&mut self, input: &mut Input) -> bool {
        let Some(entry) = self.lookup(input, |state| &state.literals) else { return false };
        if entry.is_literal() {
            self.drop_bits(entry.code_bits());
            self.length = entry.first_literal().into();
            self.step = Step::Literal;
        } else if entry.is_end_of_block() {
            self.drop_bits(entry.code_bits());
            self.step = Step::BlockType;
        } else if entry.is_invalid() {
            return self.broken();
        } else {
            if !self.need(input, entry.all_bits()) {
                return false;
            }
            self.length = self.with_extra(entry);
            self.step = Step::Distance;
        }
        true
    }

    fn distance(&mut self, input: &mut Input) -> bool {
        let Some(entry) = self.lookup(input, |state| &state.distances) else { return false };
        if entry.is_invalid() {
            return self.broken();
        }
        if !self.need(input, entry.all_bits()) {
            return false;
        }
        self.distance = self.with_extra(entry);
        self.step = Step::Match;
        true
    }

    fn with_extra(&mut self, entry: Entry) -> usize {
        let extra = self.peek(entry.all_bits()) >> entry.code_bits();
        self.drop_bits(entry.all_bits());
        entry.base() + extra as usize
    }

    /// The entry of the next code, which stays in `hold`; `None` if the input ends before its last bit.
    fn lookup(&mut self, input: &mut Input, table: fn(&Self) -> &Table) -> Option<Entry> {
        loop {
            let entry = table(self).find(self.hold);
            if entry.code_bits() <= self.bits {
                return Some(entry);
            }
            if !self.pull(input) {
                return None;
            }
        }
    }

    fn need(&mut self, input: &mut Input, bits: u32) -> bool {
        while self.bits < bits {
            if !self.pull(input) {
                return false;
            }
        }
        true
    }

    fn pull(&mut self, input: &mut Input) -> bool {
        let Some(&byte) = input.bytes.get(input.at) else { return false };
        self.hold |= u64::from(byte) << self.bits;
        self.bits += 8;
        input.at += 1;
        true
    }

    fn peek(&self, bits: u32) -> u64 {
        self.hold & ((1 << bits) - 1)
    }

    fn drop_bits(&mut self, bits: u32) {
        self.hold >>= bits;
        self.bits -= bits;
    }

    fn broken(&mut self) -> bool {
        self.step = Step::Broken;
        false
    }
}
