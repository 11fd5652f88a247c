//! The Huffman decoding of a sequential scan: what takes libjpeg-turbo the most time, done faster.
//!
//! Only for what a sound file has. Whatever is odd (a code that does not exist, a marker too early, a restart that
//! is missing) makes it give up, and libjpeg decodes the file from the start: what becomes of broken files
//! is left to it. What libjpeg does with sound bits is done to the bit, be they sensible or not.

mod bits;
mod code;
mod known;
mod place;
mod progressive;
mod segment;
#[cfg(test)]
mod tests;
mod units;

pub use code::Definition;
pub use place::{GroupUnit, Slot, Unit};
pub use progressive::{Progression, Start};

use std::sync::Arc;

use bits::{Bits, WINDOW_BYTES};
use code::{Class, LONGEST_BITS, LOOKUP_BITS, Table};
use place::Coefficients;
use units::Units;

/// Blocks in a unit, at most.
pub const MOST_BLOCKS: usize = 10;
const MOST_COMPONENTS: usize = 4;
// What a unit takes, at most, and what is read ahead.
const UNIT_BYTES: usize = MOST_BLOCKS * WINDOW_BYTES;

/// The coefficients of a block in rows.
pub type Block = [i16; 64];

/// Blocks side by side that are transformed together.
pub const GROUP_BLOCKS: usize = 4;

/// The coefficients of [`GROUP_BLOCKS`] blocks: a row of each, then the next row of each.
pub type Group = [i16; 64 * GROUP_BLOCKS];

/// What a scan consists of.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The codes for mean values, by the number of their table.
    pub dc: [Definition; 4],
    /// The codes for the other coefficients.
    pub ac: [Definition; 4],
    /// Units (one or several blocks of each component) in the scan.
    pub units: u64,
    /// Units between two restarts, 0 if there are none.
    pub restart_interval: u32,
    /// Blocks in a unit.
    pub blocks: u32,
    /// The component of each block.
    pub components: [u8; MOST_BLOCKS],
    /// For each component, which code its mean values have.
    pub dc_tables: [u8; MOST_COMPONENTS],
    /// For each component, which code its other coefficients have.
    pub ac_tables: [u8; MOST_COMPONENTS],
}

/// What came of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is decoded.
    Done,
    /// It is decoded and was the last one; the marker after it is this many bytes from the start of the scan.
    Last(usize),
    /// The scan is not for this decoder.
    GaveUp,
}

/// A scan and how far it is decoded.
#[derive(Debug)]
pub struct Scan<'a> {
    units: Units<'a>,
    blocks: Vec<BlockKind>,
    means: [i32; MOST_COMPONENTS],
    has_given_up: bool,
}

#[derive(Debug)]
struct BlockKind {
    component: usize,
    dc: Arc<Table>,
    ac: Arc<Table>,
}

impl<'a> Scan<'a> {
    /// The scan whose coded bytes `data` begins with; `None` if it is not for this decoder.
    pub fn new(data: &'a [u8], layout: &Layout) -> Option<Self> {
        let mut known: [[Option<Arc<Table>>; 4]; 2] = Default::default();
        let mut table = |class: Class, which: u8| -> Option<Arc<Table>> {
            let known = known[usize::from(class == Class::Ac)].get_mut(usize::from(which))?;
            if known.is_none() {
                let definitions = if class == Class::Ac { &layout.ac } else { &layout.dc };
                *known = Some(known::table(&definitions[usize::from(which)], class)?);
            }
            known.clone()
        };
        let mut blocks = Vec::with_capacity(MOST_BLOCKS);
        for &component in layout.components.get(..layout.blocks as usize)? {
            let component = usize::from(component);
            let dc = table(Class::Dc, *layout.dc_tables.get(component)?)?;
            let ac = table(Class::Ac, *layout.ac_tables.get(component)?)?;
            blocks.push(BlockKind { component, dc, ac });
        }
        Some(Self {
            units: Units::new(data, layout.units, layout.restart_interval),
            blocks,
            means: [0; MOST_COMPONENTS],
            has_given_up: false,
        })
    }

    /// Blocks in a unit.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Decodes the next unit to its blocks, which are all zeros.
    pub fn decode(&mut self, unit: &mut (impl Unit + ?Sized)) -> Step {
        if self.has_given_up {
            return Step::GaveUp;
        }
        let step = self.step(unit);
        self.has_given_up = step.is_none();
        step.unwrap_or(Step::GaveUp)
    }

    fn step(&mut self, unit: &mut (impl Unit + ?Sized)) -> Option<Step> {
        if self.units.begin(UNIT_BYTES)? {
            self.means = [0; MOST_COMPONENTS];
        }
        let (mut bits, mut at) = self.units.place();
        for (number, kind) in self.blocks.iter().enumerate() {
            let mut block = unit.block(number)?;
            let window = self.units.window(at)?;
            let mean = self.means.get_mut(kind.component)?;
            at += decode_block(&mut bits, window, &kind.dc, &kind.ac, mean, &mut block)?;
        }
        self.units.move_to(bits, at)?;
        if self.units.are_over() { self.units.end().map(Step::Last) } else { Some(Step::Done) }
    }
}

// Decodes a block of zeros; returns how many bytes of the window were read. `None` if there is no such code.
// A function of its own, so that its few variables are in registers.
#[inline(never)]
fn decode_block(
    state: &mut Bits,
    window: &[u8; WINDOW_BYTES],
    dc: &Table,
    ac: &Table,
    mean: &mut i32,
    block: &mut impl Coefficients,
) -> Option<usize> {
    // What a refill is enough for, or for one symbol that has to be searched.
    const LOOKUPS: u32 = 5;
    const { assert!(LOOKUPS * LOOKUP_BITS <= Bits::REFILLED && LONGEST_BITS <= Bits::REFILLED) };
    let mut bits = *state;
    let mut at = 0;
    bits.refill(window, &mut at);
    let mut entry = dc.look_up(bits.peek());
    if entry.last() > 63 {
        entry = dc.complete(bits.peek())?;
    }
    bits.take(entry);
    *mean = mean.wrapping_add(i32::from(entry.first_value()));
    block.put(0, *mean as i16);
    let mut index = 1;
    'block: while index < 64 {
        bits.refill(window, &mut at);
        let Some(next) = look_up(&mut bits, ac, index, block) else {
            index = decode_symbol(&mut bits, ac, index, block)?;
            continue;
        };
        index = next;
        if index > 63 {
            break;
        }
        for _ in 1..LOOKUPS {
            let Some(next) = look_up(&mut bits, ac, index, block) else { continue 'block };
            index = next;
            if index > 63 {
                break 'block;
            }
        }
    }
    *state = bits;
    Some(at)
}

// Decodes what one look tells. Returns where the next symbol begins, or `None` if a look does not tell.
#[inline(always)]
fn look_up(bits: &mut Bits, ac: &Table, index: usize, block: &mut impl Coefficients) -> Option<usize> {
    let entry = ac.look_up(bits.peek());
    let last = index + entry.last();
    if last > 63 {
        return None;
    }
    bits.take(entry);
    block.put(index + entry.first(), entry.first_value());
    block.put(last, entry.last_value());
    Some(index + entry.steps())
}

// Decodes a symbol that is not in the lookup, or of which it is not sure that it fits. Returns where the next begins.
#[inline(never)]
fn decode_symbol(bits: &mut Bits, ac: &Table, index: usize, block: &mut impl Coefficients) -> Option<usize> {
    let entry = ac.complete(bits.peek())?;
    bits.take(entry);
    if entry.steps() < 64 {
        // libjpeg takes the last coefficient where zeros lead past it.
        block.put((index + entry.first()).min(63), entry.first_value());
    }
    Some(index + entry.steps())
}
