//! Headers of the stream and of its blocks.

use super::{Inflate, Input, Step, table};

const CODE_LENGTH_ORDER: [u8; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

impl Inflate {
    pub(super) fn header(&mut self, input: &mut Input) -> bool {
        if !self.need(input, 16) {
            return false;
        }
        let (method_and_window, flags) = (self.peek(8), self.peek(16) >> 8);
        let divisible = ((method_and_window << 8) + flags).is_multiple_of(31);
        if !divisible || method_and_window & 0xf != 8 || method_and_window >> 4 > 7 {
            return self.broken();
        }
        self.step = if flags & 0x20 != 0 { Step::DictionaryId } else { Step::BlockType };
        self.drop_bits(16);
        true
    }

    pub(super) fn block_type(&mut self, input: &mut Input) -> bool {
        if self.last_block {
            self.drop_bits(self.bits & 7);
            self.step = Step::Checksum;
            return true;
        }
        if !self.need(input, 3) {
            return false;
        }
        self.last_block = self.peek(1) == 1;
        let kind = self.peek(3) >> 1;
        self.drop_bits(3);
        match kind {
            0 => {
                self.drop_bits(self.bits & 7);
                self.step = Step::StoredLength;
            }
            1 => {
                self.literals.build_literals(&table::FIXED_LITERAL_LENGTHS);
                self.distances.build_distances(&table::FIXED_DISTANCE_LENGTHS);
                self.step = Step::Symbol;
            }
            2 => self.step = Step::TableSizes,
            _ => return self.broken(),
        }
        true
    }

    pub(super) fn table_sizes(&mut self, input: &mut Input) -> bool {
        if !self.need(input, 14) {
            return false;
        }
        self.literal_count = self.peek(5) as usize + 257;
        self.distance_count = (self.peek(10) >> 5) as usize + 1;
        self.code_length_count = (self.peek(14) >> 10) as usize + 4;
        self.drop_bits(14);
        if self.literal_count > 286 || self.distance_count > 30 {
            return self.broken();
        }
        self.filled = 0;
        self.step = Step::CodeLengthLengths;
        true
    }

    pub(super) fn code_length_lengths(&mut self, input: &mut Input) -> bool {
        if self.filled == 0 {
            self.lengths[..19].fill(0);
        }
        while self.filled < self.code_length_count {
            if !self.need(input, 3) {
                return false;
            }
            self.lengths[usize::from(CODE_LENGTH_ORDER[self.filled])] = self.peek(3) as u8;
            self.drop_bits(3);
            self.filled += 1;
        }
        if !self.code_lengths.build_code_lengths(&self.lengths[..19]) {
            return self.broken();
        }
        self.filled = 0;
        self.step = Step::CodeLengths;
        true
    }

    pub(super) fn code_lengths(&mut self, input: &mut Input) -> bool {
        let count = self.literal_count + self.distance_count;
        while self.filled < count {
            let Some(entry) = self.lookup(input, |state| &state.code_lengths) else { return false };
            let code_bits = entry.code_bits();
            let symbol = entry.symbol();
            if symbol < 16 {
                self.drop_bits(code_bits);
                self.lengths[self.filled] = symbol as u8;
                self.filled += 1;
                continue;
            }
            let (extra_bits, least) = match symbol {
                16 => (2, 3),
                17 => (3, 3),
                _ => (7, 11),
            };
            if !self.need(input, code_bits + extra_bits) {
                return false;
            }
            self.drop_bits(code_bits);
            if symbol == 16 && self.filled == 0 {
                return self.broken();
            }
            let length = if symbol == 16 { self.lengths[self.filled - 1] } else { 0 };
            let repeat = least + self.peek(extra_bits) as usize;
            self.drop_bits(extra_bits);
            if self.filled + repeat > count {
                return self.broken();
            }
            self.lengths[self.filled..self.filled + repeat].fill(length);
            self.filled += repeat;
        }
        let (literal_lengths, distance_lengths) = self.lengths[..count].split_at(self.literal_count);
        if literal_lengths[256] == 0
            || !self.literals.build_literals(literal_lengths)
            || !self.distances.build_distances(distance_lengths)
        {
            return self.broken();
        }
        self.step = Step::Symbol;
        true
    }
}
