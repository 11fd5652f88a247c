//! Coefficients to pixels: the inverse transform, the upsampling of colour and the conversion to RGB, by rows of units.
//!
//! Only for the pictures that nearly all files hold: grey, or luminance with colour differences that have all samples,
//! half of them across, or half of them both ways. Others are left to libjpeg, and so are coefficients that no encoder
//! makes.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod kernels;
mod planes;
mod scalar;
mod steps;
#[cfg(test)]
mod tests;

use kernels::{Difference, Factors};
use planes::Plane;
use steps::Subsampling;

use super::cmyk::grey_to_rgb;
use super::entropy::{GROUP_BLOCKS, Group, GroupUnit, Progression, Scan, Slot, Start, Step};
use crate::common::memory::Buffer;
use crate::common::simd::Level;
use crate::common::streaming::Streamer;
use crate::error::Result;

const BLOCK_PX: usize = 8;
const MOST_COMPONENTS: usize = 3;
// Two samples or fewer in a row are not upsampled by their neighbours.
const LEAST_UPSAMPLED: usize = 3;

/// What a picture consists of.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Width in pixels.
    pub width_px: u32,
    /// Height in pixels.
    pub height_px: u32,
    /// How many components there are. If three, then luminance and the blue and red difference.
    pub components: u32,
    /// For each component, how many samples across and down there are where another may have more or fewer.
    pub samplings: [[u8; 2]; MOST_COMPONENTS],
    /// The factors of its coefficients, in rows.
    pub factors: [Factors; MOST_COMPONENTS],
}

impl Frame {
    // How the differences are sampled, and how many blocks across and down of each component are in a unit.
    fn sampling(&self) -> Option<(Subsampling, Vec<[usize; 2]>)> {
        match self.components {
            // A unit of a single component is one block, whatever the file says.
            1 => return Some((Subsampling::None, vec![[1, 1]])),
            3 => {}
            _ => return None,
        }
        let samplings = self.samplings.map(|sampling| sampling.map(usize::from));
        let [[across, down], difference, other] = samplings;
        if difference != other || difference.contains(&0) {
            return None;
        }
        let subsampling = if difference == [across, down] {
            Subsampling::None
        } else if difference.map(|blocks| 2 * blocks) == [across, 2 * down] {
            Subsampling::Across
        } else if difference.map(|blocks| 2 * blocks) == [across, down] {
            Subsampling::Both
        } else {
            return None;
        };
        Some((subsampling, samplings.to_vec()))
    }
}

// Where coefficients come from.
#[derive(Debug)]
enum Coefficients<'a> {
    // A few units at a time.
    Sequential {
        scan: Box<Scan<'a>>,
        groups: Vec<Group>,
        // Where the blocks of each unit are, for as many units as groups have blocks.
        slots: [Vec<Slot>; GROUP_BLOCKS],
        end: Option<usize>,
    },
    // A row of units at a time.
    Progressive(Progression<'a>),
}

/// A picture and how far it is decoded.
#[derive(Debug)]
pub struct Picture<'a> {
    coefficients: Coefficients<'a>,
    level: Level,
    subsampling: Subsampling,
    width_px: usize,
    height_px: usize,
    units_across: usize,
    units_down: usize,
    unit_rows: usize,
    planes: Vec<Plane>,
    memory: Buffer,
    // Rows of units that are decoded, and rows of pixels that were read.
    decoded: usize,
    read: usize,
}

impl<'a> Picture<'a> {
    /// The picture of `scan`, or the scan if it is not for this decoder.
    ///
    /// # Errors
    /// There may be no memory for a row of units.
    pub fn new(scan: Scan<'a>, frame: &Frame, level: Level) -> Result<std::result::Result<Self, Scan<'a>>> {
        let Some((subsampling, samplings)) = sampling(frame, level) else { return Ok(Err(scan)) };
        let blocks: usize = samplings.iter().map(|[across, down]| across * down).sum();
        if blocks != scan.blocks() {
            return Ok(Err(scan));
        }
        let coefficients = Coefficients::Sequential {
            scan: scan.into(),
            groups: vec![[0; 64 * GROUP_BLOCKS]; blocks],
            slots: std::array::from_fn(|unit| slots(&samplings, unit)),
            end: None,
        };
        Self::of(coefficients, frame, subsampling, &samplings, level).map(Ok)
    }

    /// The picture of the scans that `data` begins with, from the marker of the first on; `None` if it is not for this
    /// decoder.
    ///
    /// # Errors
    /// There may be no memory for a row of units.
    pub fn progressive(data: &'a [u8], start: &Start, frame: &Frame, level: Level) -> Result<Option<Self>> {
        let Some((subsampling, samplings)) = sampling(frame, level) else { return Ok(None) };
        let size_px = [frame.width_px as usize, frame.height_px as usize];
        let Some(progression) = Progression::new(data, start, &samplings, size_px, level) else {
            return Ok(None);
        };
        Self::of(Coefficients::Progressive(progression), frame, subsampling, &samplings, level).map(Some)
    }

    fn of(
        coefficients: Coefficients<'a>,
        frame: &Frame,
        subsampling: Subsampling,
        samplings: &[[usize; 2]],
        level: Level,
    ) -> Result<Self> {
        let (width_px, height_px) = (frame.width_px as usize, frame.height_px as usize);
        let [across, down] = samplings[0];
        let units_across = width_px.div_ceil(BLOCK_PX * across);
        let mut planes = Vec::with_capacity(samplings.len());
        let mut bytes = 0;
        for (component, &[blocks_across, blocks_down]) in samplings.iter().enumerate() {
            let plane = Plane {
                start: bytes,
                blocks_across,
                blocks_down,
                width: (width_px * blocks_across).div_ceil(across),
                height: (height_px * blocks_down).div_ceil(down),
                stride: Plane::stride(units_across.next_multiple_of(GROUP_BLOCKS) * blocks_across * BLOCK_PX),
                factors: frame.factors[component],
            };
            bytes += plane.bytes();
            planes.push(plane);
        }
        Ok(Self {
            coefficients,
            level,
            subsampling,
            width_px,
            height_px,
            units_across,
            units_down: height_px.div_ceil(BLOCK_PX * down),
            unit_rows: BLOCK_PX * down,
            planes,
            memory: Buffer::take(bytes)?,
            decoded: 0,
            read: 0,
        })
    }

    /// Fills `rgb` with the next rows of RGB pixels. `None` if the picture is not for this decoder, or `rgb` is no number of
    /// rows that are left. With a `streamer`, past the cache where rows start with a cache line.
    pub fn read(&mut self, rgb: &mut [u8], streamer: Option<&Streamer>) -> Option<()> {
        let row_bytes = self.width_px * 3;
        for rgb in rgb.chunks_mut(row_bytes) {
            if self.read == self.height_px || rgb.len() != row_bytes {
                return None;
            }
            let is_between = self.subsampling == Subsampling::Both;
            let last = ((self.read + usize::from(is_between)) / self.unit_rows).min(self.units_down - 1);
            while self.decoded <= last {
                self.decode_units()?;
            }
            self.make_row(self.read, rgb, streamer);
            self.read += 1;
        }
        Some(())
    }

    /// Where in the bytes that it was made of the marker behind the last unit is, once all rows are read.
    pub fn end(&self) -> Option<usize> {
        match &self.coefficients {
            Coefficients::Sequential { end, .. } => *end,
            Coefficients::Progressive(progression) => Some(progression.end()),
        }
    }

    // Makes the samples of the next row of units.
    fn decode_units(&mut self) -> Option<()> {
        let Self { coefficients, level, planes, memory, units_across, .. } = self;
        let memory = memory.bytes_mut();
        if self.decoded > 0 {
            planes.iter().for_each(|plane| plane.keep_last_row(memory));
        }
        let mut is_within = true;
        let mut transform = |plane: &Plane, group: &Group, row: usize, block: usize| {
            let out = plane.rows_from(memory, 1 + row * BLOCK_PX, block * BLOCK_PX);
            is_within &= kernels::transform(*level, group, &plane.factors, out, plane.stride);
        };
        match coefficients {
            Coefficients::Sequential { scan, groups, slots, end } => {
                for first in (0..*units_across).step_by(GROUP_BLOCKS) {
                    groups.fill([0; 64 * GROUP_BLOCKS]);
                    for slots in slots.iter().take(*units_across - first) {
                        match scan.decode(&mut GroupUnit { groups, slots }) {
                            Step::Done => {}
                            Step::Last(at) => *end = Some(at),
                            Step::GaveUp => return None,
                        }
                    }
                    let mut groups = groups.iter();
                    for plane in &*planes {
                        for row in 0..plane.blocks_down {
                            for (number, group) in groups.by_ref().take(plane.blocks_across).enumerate() {
                                transform(
                                    plane,
                                    group,
                                    row,
                                    first * plane.blocks_across + number * GROUP_BLOCKS,
                                );
                            }
                        }
                    }
                }
            }
            Coefficients::Progressive(progression) => {
                progression.decode_row()?;
                for (component, plane) in planes.iter().enumerate() {
                    for row in 0..plane.blocks_down {
                        for (number, group) in progression.groups(component, row).iter().enumerate() {
                            transform(plane, group, row, number * GROUP_BLOCKS);
                        }
                    }
                }
            }
        }
        if !is_within {
            return None;
        }
        if self.subsampling != Subsampling::None {
            planes[1..].iter().for_each(|plane| plane.extend_rows(memory));
        }
        self.decoded += 1;
        Some(())
    }

    fn make_row(&self, row: usize, rgb: &mut [u8], streamer: Option<&Streamer>) {
        let memory = self.memory.bytes();
        let [luminance, differences @ ..] = self.planes.as_slice() else { return };
        let before = self.decoded - 1;
        let luminance = luminance.row_from(memory, luminance.slot(row, before), 0);
        let &[blue, red] = &differences else { return grey_to_rgb(luminance, rgb) };
        let differences = [blue, red].map(|plane| {
            let (near, far) = match self.subsampling {
                Subsampling::Both if row.is_multiple_of(2) => (row / 2, (row / 2).saturating_sub(1)),
                Subsampling::Both => (row / 2, (row / 2 + 1).min(plane.height - 1)),
                _ => (row, row),
            };
            let [near, far] = [near, far].map(|row| plane.row_from_before(memory, plane.slot(row, before)));
            Difference { near, far }
        });
        kernels::rgb_row(self.level, self.subsampling, luminance, differences, rgb, streamer);
    }
}

// How the picture is sampled, if it is for this decoder.
fn sampling(frame: &Frame, level: Level) -> Option<(Subsampling, Vec<[usize; 2]>)> {
    let (subsampling, samplings) = frame.sampling().filter(|_| kernels::are_worth_it(level))?;
    let least = if subsampling == Subsampling::None { 1 } else { LEAST_UPSAMPLED * 2 - 1 };
    (frame.width_px as usize >= least && frame.height_px > 0).then_some((subsampling, samplings))
}

// Where the blocks of a unit are: a group has the same row of blocks of consecutive units.
fn slots(samplings: &[[usize; 2]], unit: usize) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut first = 0;
    for &[across, down] in samplings {
        for row in 0..down {
            for column in 0..across {
                let at = unit * across + column;
                slots.push(Slot { group: first + row * across + at / GROUP_BLOCKS, lane: at % GROUP_BLOCKS });
            }
        }
        first += across * down;
    }
    slots
}
