//! The Huffman decoding of a progressive picture (ITU-T T.81, annex G), all scans side by side.
//!
//! Each scan goes over the whole picture, but a row of units needs of each only its own part: so the scans take turns row by
//! row, and no more coefficients are in memory than those of a row. As in a sequential scan, whatever is odd makes it
//! give up, also what libjpeg only warns of: scans that do not refine what is there, bit by bit, to the last bit.

#[cfg(target_arch = "x86_64")]
mod bmi2;
mod headers;
mod passes;
mod sets;
#[cfg(test)]
mod tests;

use super::code::{Class, Definition, Table};
use super::units::Units;
use super::{GROUP_BLOCKS, Group, MOST_BLOCKS};
use crate::common::simd::Level;

use headers::{Header, Kind};

/// Components that a picture may have here.
pub const MOST_COMPONENTS: usize = 3;

/// What is known where the first scan begins.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// The codes for mean values, by the number of their table.
    pub dc: [Definition; 4],
    /// The codes for the other coefficients.
    pub ac: [Definition; 4],
    /// Units between two restarts, 0 if there are none.
    pub restart_interval: u32,
    /// Components in the first scan.
    pub components: u32,
    /// What the scans call the components of the picture.
    pub names: [u8; MOST_COMPONENTS],
}

/// What a component has.
#[derive(Debug)]
struct Component {
    // Blocks across and down in a unit of all components.
    across: usize,
    down: usize,
    // Blocks that hold samples.
    blocks_across: usize,
    blocks_down: usize,
    // Of a row of units: a row of blocks, then the next. So with the bits below, which tell for each block
    // which coefficients are not 0, in the order of the file.
    groups: Vec<Group>,
    groups_across: usize,
    present: Vec<u64>,
}

#[derive(Debug)]
struct Scan<'a> {
    units: Units<'a>,
    kind: Kind,
    components: Vec<Member>,
    // Blocks after this one that the last symbol ended.
    ended: u32,
    // Where the marker behind it is expected, in its own bytes.
    end: usize,
}

#[derive(Debug)]
struct Member {
    component: usize,
    // None where bits come alone.
    table: Option<Box<Table>>,
    mean: i32,
}

/// The scans of a picture, and how far they are decoded.
#[derive(Debug)]
pub struct Progression<'a> {
    components: Vec<Component>,
    scans: Vec<Scan<'a>>,
    units_across: usize,
    units_down: usize,
    rows: usize,
    end: usize,
    decode: passes::Decode,
}

impl<'a> Progression<'a> {
    /// The scans that `data` begins with, from the marker of the first on; `None` if they are not for this decoder.
    /// `samplings` has for each component how many blocks across and down are in a unit.
    pub fn new(
        data: &'a [u8],
        start: &Start,
        samplings: &[[usize; 2]],
        [width_px, height_px]: [usize; 2],
        level: Level,
    ) -> Option<Self> {
        let (headers, end) = headers::read(data, start, samplings.len())?;
        let [across, down] = *samplings.first()?;
        let units_across = width_px.div_ceil(8 * across);
        let units_down = height_px.div_ceil(8 * down);
        let components: Vec<Component> = samplings
            .iter()
            .map(|&[blocks_across, blocks_down]| {
                let groups_across = (units_across * blocks_across).div_ceil(GROUP_BLOCKS);
                Component {
                    across: blocks_across,
                    down: blocks_down,
                    blocks_across: (width_px * blocks_across).div_ceil(8 * across),
                    blocks_down: (height_px * blocks_down).div_ceil(8 * down),
                    groups: vec![[0; 64 * GROUP_BLOCKS]; blocks_down * groups_across],
                    groups_across,
                    present: vec![0; blocks_down * groups_across * GROUP_BLOCKS],
                }
            })
            .collect();
        let scans = headers.iter().map(|header| {
            let count = match header.components.as_slice() {
                [only] => {
                    let component = &components[only.component];
                    component.blocks_across * component.blocks_down
                }
                _ => units_across * units_down,
            };
            scan(data, header, count, &components)
        });
        let scans = scans.collect::<Option<Vec<_>>>()?;
        Some(Self {
            components,
            scans,
            units_across,
            units_down,
            rows: 0,
            end,
            decode: passes::decode_for(level),
        })
    }

    /// Decodes the next row of units.
    pub fn decode_row(&mut self) -> Option<()> {
        for component in &mut self.components {
            component.groups.fill([0; 64 * GROUP_BLOCKS]);
            component.present.fill(0);
        }
        let is_last = self.rows + 1 == self.units_down;
        for scan in &mut self.scans {
            (self.decode)(scan, &mut self.components, self.rows, self.units_across)?;
            if is_last && !(scan.units.are_over() && scan.units.end() == Some(scan.end)) {
                return None;
            }
        }
        self.rows += 1;
        Some(())
    }

    /// The groups of a row of blocks of a component in the row of units that was decoded last.
    pub fn groups(&self, component: usize, row: usize) -> &[Group] {
        let component = &self.components[component];
        &component.groups[row * component.groups_across..][..component.groups_across]
    }

    /// Where in `data` the marker behind the last scan is.
    pub fn end(&self) -> usize {
        self.end
    }
}

fn scan<'a>(data: &'a [u8], header: &Header, units: usize, components: &[Component]) -> Option<Scan<'a>> {
    let is_interleaved = header.components.len() > 1;
    let blocks = |component: &Component| component.across * component.down;
    let in_unit: usize = header.components.iter().map(|member| blocks(&components[member.component])).sum();
    if is_interleaved && in_unit > MOST_BLOCKS {
        return None;
    }
    let class = match header.kind {
        Kind::MeansFirst { .. } => Some(Class::Dc),
        Kind::MeansRefined { .. } => None,
        Kind::First { .. } => Some(Class::AcFirst),
        Kind::Refined { .. } => Some(Class::AcRefined),
    };
    let members = header.components.iter().map(|member| {
        let table = match class {
            Some(class) => Some(Table::new(&member.definition, class)?),
            None => None,
        };
        Some(Member { component: member.component, table, mean: 0 })
    });
    // With the marker.
    let coded = data.get(header.coded.start..header.coded.end + 2)?;
    Some(Scan {
        units: Units::new(coded, units as u64, header.restart_interval),
        kind: header.kind,
        components: members.collect::<Option<Vec<_>>>()?,
        ended: 0,
        end: header.coded.len(),
    })
}
