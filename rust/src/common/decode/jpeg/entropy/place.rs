//! Where coefficients go: blocks by themselves, or side by side.

use super::{Block, GROUP_BLOCKS, Group};

/// Takes the coefficients of a block.
pub trait Coefficients {
    /// Puts the one that is number `index` modulo 64 in the order of the file.
    fn put(&mut self, index: usize, value: i16);
}

/// The blocks of a unit.
pub trait Unit {
    /// A block of it.
    type Block<'b>: Coefficients
    where
        Self: 'b;

    /// The block with this number, if there is one.
    fn block(&mut self, number: usize) -> Option<Self::Block<'_>>;
}

impl Coefficients for &mut Block {
    #[inline(always)]
    fn put(&mut self, index: usize, value: i16) {
        self[usize::from(PLACES[index & 63]) & 63] = value;
    }
}

/// Blocks by themselves.
impl Unit for [&mut Block] {
    type Block<'b>
        = &'b mut Block
    where
        Self: 'b;

    fn block(&mut self, number: usize) -> Option<&mut Block> {
        self.get_mut(number).map(|block| &mut **block)
    }
}

/// Which block of which group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Number of the group.
    pub group: usize,
    /// Number of the block in it.
    pub lane: usize,
}

/// Blocks that are parts of groups.
#[derive(Debug)]
pub struct GroupUnit<'g> {
    /// The groups.
    pub groups: &'g mut [Group],
    /// Where each block of the unit is.
    pub slots: &'g [Slot],
}

impl Unit for GroupUnit<'_> {
    type Block<'b>
        = Lane<'b>
    where
        Self: 'b;

    #[inline]
    fn block(&mut self, number: usize) -> Option<Lane<'_>> {
        let slot = self.slots.get(number)?;
        Lane::new(self.groups.get_mut(slot.group)?, slot.lane)
    }
}

/// A block of a group.
#[derive(Debug)]
pub struct Lane<'g> {
    group: &'g mut Group,
    places: &'static [u8; 64],
}

impl<'g> Lane<'g> {
    /// The block with this number in the group, if there is one.
    #[inline(always)]
    pub fn new(group: &'g mut Group, lane: usize) -> Option<Self> {
        Some(Self { group, places: LANES.get(lane)? })
    }

    /// The coefficient that is number `index` modulo 64 in the order of the file.
    #[inline(always)]
    pub fn get(&self, index: usize) -> i16 {
        self.group[usize::from(self.places[index & 63])]
    }
}

impl Coefficients for Lane<'_> {
    #[inline(always)]
    fn put(&mut self, index: usize, value: i16) {
        self.group[usize::from(self.places[index & 63])] = value;
    }
}

// Where the coefficients of a block are, in the order of the file.
pub const PLACES: [u8; 64] = {
    let mut places = [0; 64];
    let (mut row, mut column, mut index) = (0_u8, 0_u8, 0);
    while index < 64 {
        places[index] = row * 8 + column;
        let goes_up = (row + column).is_multiple_of(2);
        match (goes_up, row, column) {
            (true, _, 7) | (false, 0..7, 0) => row += 1,
            (true, 0, _) | (false, 7, _) => column += 1,
            (true, ..) => (row, column) = (row - 1, column + 1),
            (false, ..) => (row, column) = (row + 1, column - 1),
        }
        index += 1;
    }
    places
};

// The same for each block of a group.
const LANES: [[u8; 64]; GROUP_BLOCKS] = {
    let mut lanes = [[0; 64]; GROUP_BLOCKS];
    let mut lane = 0;
    while lane < GROUP_BLOCKS {
        let mut index = 0;
        while index < 64 {
            let (row, column) = (PLACES[index] / 8, PLACES[index] % 8);
            lanes[lane][index] = (row * GROUP_BLOCKS as u8 + lane as u8) * 8 + column;
            index += 1;
        }
        lane += 1;
    }
    lanes
};
