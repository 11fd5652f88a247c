//! The inner loop over symbols, far from the ends of input and output, where nothing needs to be counted.

use super::table::{DISTANCE_ROOT_BITS, Entry, LITERAL_ROOT_BITS};
use super::{Inflate, Input, Step};

const LONGEST_MATCH_BYTES: usize = 258;
const COPY_BYTES: usize = 16;
const WORD_BYTES: usize = 8;
// Output of one turn: four looks of two literals, or three and a match.
const TURN_BYTES: usize = 8 + LONGEST_MATCH_BYTES;

/// The loop in one of its translations.
pub(super) type Turns = fn(&mut Inflate, &mut Input, &mut [u8], &mut usize, usize, usize);

/// Decodes symbols while there is room for a whole turn. What it does not finish, it leaves untouched for the
/// careful steps, so a broken code fails there.
#[inline(always)]
pub(super) fn turns(
    state: &mut Inflate,
    input: &mut Input,
    out: &mut [u8],
    position: &mut usize,
    limit: usize,
    start: usize,
) {
    let end = limit.min(out.len().saturating_sub(COPY_BYTES)).saturating_sub(TURN_BYTES);
    let bytes = input.bytes;
    let (Some(literals), Some(distances)) = (
        state.literals.root::<{ 1 << LITERAL_ROOT_BITS }>(),
        state.distances.root::<{ 1 << DISTANCE_ROOT_BITS }>(),
    ) else {
        return;
    };
    let mut reader = Reader { at: input.at, hold: state.hold, bits: state.bits };
    let mut position_now = *position;
    let most_distance = |position: usize| state.total_out + (position - start) as u64;
    while position_now < end && reader.refill(bytes) {
        let mut entry = reader.look(literals);
        if entry.is_literal() {
            position_now += put(out, position_now, entry);
            reader.take(entry);
            entry = reader.look(literals);
            if entry.is_literal() {
                position_now += put(out, position_now, entry);
                reader.take(entry);
                entry = reader.look(literals);
                if entry.is_literal() {
                    position_now += put(out, position_now, entry);
                    reader.take(entry);
                    entry = reader.look(literals);
                    if entry.is_literal() {
                        position_now += put(out, position_now, entry);
                        reader.take(entry);
                        continue;
                    }
                }
            }
            if !reader.refill(bytes) {
                break;
            }
        }
        if entry.is_special() {
            if entry.is_link() {
                entry = state.literals.follow(entry, reader.hold);
            }
            if entry.is_literal() {
                position_now += put(out, position_now, entry);
                reader.take(entry);
                continue;
            }
            if entry.is_end_of_block() {
                reader.take(entry);
                state.step = Step::BlockType;
                break;
            }
            if entry.is_invalid() {
                break;
            }
        }
        let mut ahead = reader;
        let length = ahead.take_based(entry);
        let mut entry = ahead.look(distances);
        if entry.is_link() {
            entry = state.distances.follow(entry, ahead.hold);
        }
        if entry.is_invalid() {
            break;
        }
        let distance = ahead.take_based(entry);
        if distance as u64 > most_distance(position_now) {
            break;
        }
        reader = ahead;
        copy_match_loosely(out, position_now, distance, length);
        position_now += length;
    }
    *position = position_now;
    (input.at, state.hold, state.bits) = reader.give_back(input.at);
}

#[derive(Clone, Copy)]
struct Reader {
    at: usize,
    hold: u64,
    bits: u32,
}

impl Reader {
    // At least 56 bits, or `false` near the end of the input. Bits above the counted ones may be there already.
    #[inline(always)]
    fn refill(&mut self, bytes: &[u8]) -> bool {
        let Some(next) = bytes.get(self.at..).and_then(|rest| rest.first_chunk()) else { return false };
        self.hold |= u64::from_le_bytes(*next) << self.bits;
        self.at += (63 - self.bits as usize) >> 3;
        self.bits |= 56;
        true
    }

    #[inline(always)]
    fn look<const ENTRIES: usize>(&self, root: &[Entry; ENTRIES]) -> Entry {
        root[self.hold as usize & (ENTRIES - 1)]
    }

    #[inline(always)]
    fn take(&mut self, entry: Entry) {
        self.hold = entry.skip(self.hold);
        self.bits -= entry.all_bits();
    }

    #[inline(always)]
    fn take_based(&mut self, entry: Entry) -> usize {
        let all = self.hold & ((1 << entry.all_bits()) - 1);
        self.take(entry);
        entry.base() + (all >> entry.code_bits()) as usize
    }

    // Whole bytes go back to the input, as zlib gives them back, but none that an earlier call took.
    fn give_back(self, start: usize) -> (usize, u64, u32) {
        let bytes = (self.bits as usize >> 3).min(self.at - start);
        let bits = self.bits - 8 * bytes as u32;
        (self.at - bytes, self.hold & ((1 << bits) - 1), bits)
    }
}

#[inline(always)]
fn put(out: &mut [u8], position: usize, entry: Entry) -> usize {
    out[position..position + 2].copy_from_slice(&entry.literal_bytes());
    entry.literals()
}

/// Repeats what lies `distance` before, and may write up to [`COPY_BYTES`] more than `length`.
#[inline(always)]
fn copy_match_loosely(out: &mut [u8], position: usize, distance: usize, length: usize) {
    let from = position - distance;
    let mut done = 0;
    if distance >= COPY_BYTES {
        while done < length {
            out.copy_within(from + done..from + done + COPY_BYTES, position + done);
            done += COPY_BYTES;
        }
    } else if distance >= WORD_BYTES {
        while done < length {
            out.copy_within(from + done..from + done + WORD_BYTES, position + done);
            done += WORD_BYTES;
        }
    } else {
        let Some(word) = out.get(from..).and_then(|rest| rest.first_chunk()) else { return };
        let bits = 8 * distance;
        let mut pattern = u64::from_le_bytes(*word) & ((1 << bits) - 1);
        let mut filled = bits;
        while filled < 64 {
            pattern |= pattern << filled;
            filled *= 2;
        }
        // Whole periods, so that the pattern fits each time.
        let step = WORD_BYTES / distance * distance;
        while done < length {
            out[position + done..position + done + WORD_BYTES].copy_from_slice(&pattern.to_le_bytes());
            done += step;
        }
    }
}

/// Repeats what lies `distance` before, `length` bytes of it, overlapping or not.
pub(super) fn copy_match(out: &mut [u8], position: usize, distance: usize, length: usize) {
    if distance == 1 {
        let byte = out[position - 1];
        out[position..position + length].fill(byte);
        return;
    }
    let from = position - distance;
    let mut done = 0;
    while done < length {
        // All that is there repeats with the same period, so the copied piece may double each time.
        let count = (distance + done).min(length - done);
        out.copy_within(from..from + count, position + done);
        done += count;
    }
}
