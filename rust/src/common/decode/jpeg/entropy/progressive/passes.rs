//! What each kind of scan does to the blocks of a row of units.

use super::headers::Kind;
use super::sets::{Plain, Sets};
use super::{Component, Member, Scan};
use crate::common::decode::jpeg::entropy::bits::{Bits, WINDOW_BYTES};
use crate::common::decode::jpeg::entropy::code::{LOOKUP_BITS, Table, ends_blocks};
use crate::common::decode::jpeg::entropy::place::{Coefficients, Lane};
use crate::common::decode::jpeg::entropy::{GROUP_BLOCKS, units::Units};
use crate::common::simd::Level;

/// [`row`] in one of its translations.
pub type Decode = fn(&mut Scan<'_>, &mut [Component], usize, usize) -> Option<()>;

/// The translation for a level.
pub fn decode_for(level: Level) -> Decode {
    #[cfg(target_arch = "x86_64")]
    if level != Level::Scalar && super::bmi2::is_available() {
        return super::bmi2::row;
    }
    let _ = level;
    row::<Plain>
}

impl Component {
    fn index(&self, row: usize, column: usize) -> usize {
        row * self.groups_across * GROUP_BLOCKS + column
    }

    // How many rows of blocks with samples row `row` of units has.
    fn rows(&self, row: usize) -> usize {
        self.down.min(self.blocks_down.saturating_sub(row * self.down))
    }

    #[inline(always)]
    fn block(&mut self, index: usize) -> Option<Lane<'_>> {
        Lane::new(self.groups.get_mut(index / GROUP_BLOCKS)?, index % GROUP_BLOCKS)
    }
}

/// Decodes what the scan has of row `row` of units, of which there are `units_across` in it.
#[inline(always)]
pub fn row<S: Sets>(
    scan: &mut Scan<'_>,
    components: &mut [Component],
    row: usize,
    units_across: usize,
) -> Option<()> {
    let Scan { units, kind, components: members, ended, .. } = scan;
    match (*kind, members.as_mut_slice()) {
        (Kind::First { first, last, shift }, [Member { component, table: Some(table), .. }]) => {
            let band = Band { first: first.into(), last: last.into(), shift };
            band.first(units, table, components.get_mut(*component)?, row, ended)
        }
        (Kind::Refined { first, last, shift }, [Member { component, table: Some(table), .. }]) => {
            let band = Band { first: first.into(), last: last.into(), shift };
            band.refined::<S>(units, table, components.get_mut(*component)?, row, ended)
        }
        (Kind::MeansFirst { shift }, members) => {
            dc_row(units, members, components, row, units_across, |bits, window, member, block| {
                let table = member.table.as_deref()?;
                let mut at = 0;
                bits.refill(window, &mut at);
                let mut entry = table.look_up(bits.peek());
                if entry.last() > 63 {
                    entry = table.complete(bits.peek())?;
                }
                bits.take(entry);
                // libjpeg refuses sums that are too large for a number.
                member.mean = member.mean.checked_add(entry.first_value().into())?;
                block.put(0, (member.mean << shift) as i16);
                Some(at)
            })
        }
        (Kind::MeansRefined { shift }, members) => {
            dc_row(units, members, components, row, units_across, |bits, window, _, block| {
                let mut at = 0;
                bits.refill(window, &mut at);
                let bit = (bits.peek() >> 63) as i16;
                bits.drop(1);
                block.put(0, block.get(0) | bit << shift);
                Some(at)
            })
        }
        _ => None,
    }
}

#[inline(always)]
fn dc_row(
    units: &mut Units<'_>,
    members: &mut [Member],
    components: &mut [Component],
    row: usize,
    units_across: usize,
    mut decode: impl FnMut(&mut Bits, &[u8; WINDOW_BYTES], &mut Member, &mut Lane<'_>) -> Option<usize>,
) -> Option<()> {
    // Of ten blocks, each with the longest code and value.
    const UNIT_BYTES: usize = 64;
    if let [member] = members {
        let component = components.get_mut(member.component)?;
        for row in 0..component.rows(row) {
            for column in 0..component.blocks_across {
                if units.begin(UNIT_BYTES)? {
                    member.mean = 0;
                }
                let (mut bits, mut at) = units.place();
                let mut block = component.block(component.index(row, column))?;
                at += decode(&mut bits, units.window(at)?, member, &mut block)?;
                units.move_to(bits, at)?;
            }
        }
        return Some(());
    }
    for unit in 0..units_across {
        if units.begin(UNIT_BYTES)? {
            members.iter_mut().for_each(|member| member.mean = 0);
        }
        let (mut bits, mut at) = units.place();
        for member in &mut *members {
            let component = components.get_mut(member.component)?;
            for row in 0..component.down {
                for column in unit * component.across..(unit + 1) * component.across {
                    let mut block = component.block(component.index(row, column))?;
                    at += decode(&mut bits, units.window(at)?, member, &mut block)?;
                }
            }
        }
        units.move_to(bits, at)?;
    }
    Some(())
}

// Coefficients from `first` to `last`, of which `shift` bits are missing.
#[derive(Debug, Clone, Copy)]
struct Band {
    first: usize,
    last: usize,
    shift: u32,
}

impl Band {
    // The first scan, in a row of units; `ended` is how many blocks were ended by the last symbol besides its own.
    #[inline(always)]
    fn first(
        self,
        units: &mut Units<'_>,
        table: &Table,
        component: &mut Component,
        row: usize,
        ended: &mut u32,
    ) -> Option<()> {
        for row in 0..component.rows(row) {
            let mut column = 0;
            while column < component.blocks_across {
                let left = (component.blocks_across - column) as u32;
                let run = units.before_restart((*ended).min(left));
                units.skip(run)?;
                *ended -= run;
                column += run as usize;
                if run < left {
                    // After a restart nothing is ended any more.
                    units.begin(WINDOW_BYTES)?;
                    *ended = self.decode(units, table, component, component.index(row, column))?;
                    column += 1;
                }
            }
        }
        Some(())
    }

    // A scan that refines, likewise.
    #[inline(always)]
    fn refined<S: Sets>(
        self,
        units: &mut Units<'_>,
        table: &Table,
        component: &mut Component,
        row: usize,
        ended: &mut u32,
    ) -> Option<()> {
        for row in 0..component.rows(row) {
            let mut column = 0;
            while column < component.blocks_across {
                let left = (component.blocks_across - column) as u32;
                let run = units.before_restart((*ended).min(left));
                units.skip(run)?;
                *ended -= run;
                for _ in 0..run {
                    self.correct::<S>(units, component, component.index(row, column))?;
                    column += 1;
                }
                if run < left {
                    units.begin(WINDOW_BYTES)?;
                    *ended = self.refine::<S>(units, table, component, component.index(row, column))?;
                    column += 1;
                }
            }
        }
        Some(())
    }

    // Returns how many blocks the last symbol ended besides this one.
    #[inline(always)]
    fn decode(
        self,
        units: &mut Units<'_>,
        table: &Table,
        component: &mut Component,
        index: usize,
    ) -> Option<u32> {
        // What a refill is enough for, as in a sequential scan.
        const LOOKUPS: usize = 5;
        const { assert!(LOOKUPS as u32 * LOOKUP_BITS <= Bits::REFILLED) };
        let (mut bits, mut at) = units.place();
        let window = units.window(at)?;
        let mut read = 0;
        let mut present = 0;
        let mut block = component.block(index)?;
        let mut next = self.first;
        let mut ended = 0;
        'block: while next <= self.last {
            bits.refill(window, &mut read);
            for _ in 0..LOOKUPS {
                let entry = table.look_up(bits.peek());
                let last = next + entry.last();
                if last > self.last {
                    bits.refill(window, &mut read);
                    let (code_bits, symbol) = table.symbol(bits.peek())?;
                    if ends_blocks(symbol) {
                        ended = run(&mut bits, code_bits, symbol);
                        break 'block;
                    }
                    let entry = table.with_value(bits.peek(), code_bits, symbol);
                    bits.take(entry);
                    let to = next + entry.first();
                    // libjpeg writes beyond the band.
                    if to > self.last {
                        return None;
                    }
                    present |= self.put(&mut block, to, entry.first_value());
                    next += entry.steps();
                    continue 'block;
                }
                bits.take(entry);
                present |= self.put(&mut block, next + entry.first(), entry.first_value());
                present |= self.put(&mut block, last, entry.last_value());
                next += entry.steps();
                if next > self.last {
                    break 'block;
                }
            }
        }
        *component.present.get_mut(index)? |= present;
        at += read;
        units.move_to(bits, at)?;
        Some(ended)
    }

    // Returns how many blocks the last symbol ended besides this one.
    #[inline(always)]
    fn refine<S: Sets>(
        self,
        units: &mut Units<'_>,
        table: &Table,
        component: &mut Component,
        index: usize,
    ) -> Option<u32> {
        let (mut bits, mut at) = units.place();
        let window = units.window(at)?;
        let mut read = 0;
        let present = *component.present.get(index)?;
        let mut block = component.block(index)?;
        // Those that are corrected once a symbol leads past them, and those that it may lead to.
        let mut others = present & self.set();
        let mut zeros = !present & self.set();
        let (mut added, mut corrected) = (0, 0);
        let mut next = self.first;
        let mut ended = 0;
        while next <= self.last {
            bits.refill(window, &mut read);
            let mut entry = table.look_up(bits.peek());
            if entry.last() > 63 {
                let (code_bits, symbol) = table.symbol(bits.peek())?;
                if ends_blocks(symbol) {
                    ended = run(&mut bits, code_bits, symbol);
                    corrected |= corrections::<S>(&mut bits, window, &mut read, others);
                    break;
                }
                // libjpeg takes a longer value for one of 1.
                if symbol & 15 > 1 {
                    return None;
                }
                entry = table.with_value(bits.peek(), code_bits, symbol);
            }
            bits.take(entry);
            if entry.steps() > 63 {
                corrected |= corrections::<S>(&mut bits, window, &mut read, others);
                break;
            }
            let to = S::nth(zeros, entry.first());
            // libjpeg writes beyond the band.
            if to == 0 {
                return None;
            }
            let before = others & (to - 1);
            others ^= before;
            zeros &= !(to | (to - 1));
            if before.count_ones() <= CORRECTIONS {
                corrected |= S::chosen(before, bits.peek().reverse_bits());
                bits.drop(before.count_ones());
            } else {
                corrected |= corrections::<S>(&mut bits, window, &mut read, before);
            }
            let to = to.trailing_zeros() as usize;
            added |= self.put(&mut block, to, entry.first_value());
            next = to + 1;
        }
        self.add_bits(&mut block, corrected);
        *component.present.get_mut(index)? |= added;
        at += read;
        units.move_to(bits, at)?;
        Some(ended)
    }

    // A block without symbols.
    #[inline(always)]
    fn correct<S: Sets>(self, units: &mut Units<'_>, component: &mut Component, index: usize) -> Option<()> {
        let others = *component.present.get(index)? & self.set();
        if others == 0 {
            return Some(());
        }
        units.prepare(WINDOW_BYTES);
        let (mut bits, mut at) = units.place();
        let mut read = 0;
        let corrected = corrections::<S>(&mut bits, units.window(at)?, &mut read, others);
        self.add_bits(&mut component.block(index)?, corrected);
        at += read;
        units.move_to(bits, at)
    }

    #[inline(always)]
    fn set(self) -> u64 {
        (u64::MAX >> (63 - self.last)) & (u64::MAX << self.first)
    }

    #[inline(always)]
    fn put(self, block: &mut Lane<'_>, index: usize, value: i16) -> u64 {
        let value = value.wrapping_shl(self.shift);
        block.put(index, value);
        u64::from(value != 0) << (index & 63)
    }

    // Moves the coefficients in the set away from 0.
    #[inline(always)]
    fn add_bits(self, block: &mut Lane<'_>, mut set: u64) {
        while set != 0 {
            let index = set.trailing_zeros() as usize;
            set &= set - 1;
            let value = block.get(index);
            let sign = value >> 15;
            block.put(index, value.wrapping_add(((1 << self.shift) ^ sign).wrapping_sub(sign)));
        }
    }
}

// Bits that are left of a refill after a code and a bit.
const CORRECTIONS: u32 = Bits::REFILLED - 17;

// Takes a bit for each of the set. Returns those whose bit is 1.
#[inline(always)]
fn corrections<S: Sets>(bits: &mut Bits, window: &[u8; WINDOW_BYTES], read: &mut usize, mut set: u64) -> u64 {
    let mut chosen = 0;
    while set != 0 {
        bits.refill(window, read);
        let now = set & S::nth(set, CORRECTIONS as usize).wrapping_sub(1);
        chosen |= S::chosen(now, bits.peek().reverse_bits());
        bits.drop(now.count_ones());
        set ^= now;
    }
    chosen
}

// Takes a symbol that ends blocks, and the bits that tell how many. Returns how many besides this one.
#[inline(always)]
fn run(bits: &mut Bits, code_bits: u32, symbol: u8) -> u32 {
    bits.drop(code_bits);
    let more = u32::from(symbol >> 4);
    let count = (1 << more) + (bits.peek() >> 1 >> (63 - more)) as u32;
    bits.drop(more);
    count - 1
}
