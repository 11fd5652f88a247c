//! In which order a canvas becomes values, and which of them a band of its rows becomes.

use crate::common::cut::{Block, Cutter, Order, Rows, STAGE_BYTES};
use crate::common::normalise::{CHANNELS, Element};
use crate::error::{CoreError, Result};

// Rows of a band where the layout does not say.
const BAND_ROWS: usize = 32;

/// How the values of a patch lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// Row, column, channel.
    Hwc,
    /// Channel, time, row, column: so many copies of a still picture along time.
    Chw {
        /// How many.
        copies: usize,
    },
    /// Time, channel, row, column.
    Tchw {
        /// How many copies.
        copies: usize,
    },
}

/// How a canvas becomes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Square patches, one after the other, row by row; with `merge`, squares of so many patches are neighbours.
    Patches {
        /// Side of a patch, in pixels.
        px: usize,
        /// Patches of a square, along each side; at least 1.
        merge: usize,
        /// How the values of a patch lie.
        inside: Inside,
    },
    /// Tiles, row by row, each as channel, row, column.
    Tiles {
        /// Width of a tile, in pixels.
        width: usize,
        /// Height of a tile, in pixels.
        height: usize,
    },
    /// Tiles, row by row, each as channel, row of a patch, patch, column of a patch.
    Strips {
        /// Side of a patch, in pixels.
        px: usize,
        /// Width of a tile, in pixels.
        width: usize,
        /// Height of a tile, in pixels.
        height: usize,
    },
}

/// A canvas of one size under a layout.
#[derive(Debug, Clone, Copy)]
pub struct Canvas {
    /// The layout.
    pub layout: Layout,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
}

/// The places in the output that a band of rows is written to, in the order in which it is.
pub type Places<'o, T> = Vec<&'o mut [T]>;

impl Layout {
    /// Patches that stand row by row.
    pub fn patches(px: usize, inside: Inside) -> Self {
        Self::Patches { px, merge: 1, inside }
    }

    /// The whole canvas as channel, row, column.
    pub fn whole(width: usize, height: usize) -> Self {
        Self::Tiles { width, height }
    }

    // Width and height of what the canvas must be whole multiples of.
    fn unit(self) -> (usize, usize) {
        match self {
            Self::Patches { px, merge, .. } => (px.saturating_mul(merge), px.saturating_mul(merge)),
            Self::Tiles { width, height } | Self::Strips { width, height, .. } => (width, height),
        }
    }

    /// Refuses a canvas that is no whole number of patches or tiles.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] that names the sides.
    pub fn check(self, width: usize, height: usize) -> Result<()> {
        let (unit_width, unit_height) = self.unit();
        let whole = |side: usize, unit: usize| unit > 0 && side.is_multiple_of(unit);
        let has_strips = match self {
            Self::Strips { px, width, height } => whole(width, px) && whole(height, px),
            Self::Patches { inside: Inside::Chw { copies } | Inside::Tchw { copies }, .. } => copies > 0,
            _ => true,
        };
        if whole(width, unit_width) && whole(height, unit_height) && has_strips {
            return Ok(());
        }
        Err(CoreError::argument(format!(
            "{width} x {height} pixels are no whole number of {unit_width} x {unit_height} tokens; resize first"
        )))
    }
}

impl Inside {
    fn block(self, columns: usize, rows: usize) -> Block {
        let (order, copies) = match self {
            Self::Hwc => (Order::Interleaved, 1),
            Self::Chw { copies } => (Order::ChannelMajor, copies),
            Self::Tchw { copies } => (Order::CopyMajor, copies),
        };
        Block { rows, columns, order, copies }
    }
}

impl Canvas {
    /// How many values it becomes.
    pub fn values(&self) -> usize {
        let copies = match self.layout {
            Layout::Patches { px, inside, .. } => inside.block(px, px).copies,
            _ => 1,
        };
        [self.width, self.height, CHANNELS].iter().fold(copies, |values, &len| values.saturating_mul(len))
    }

    /// Rows of a band. The last one of the canvas may have fewer.
    pub fn band_rows(&self) -> usize {
        match self.layout {
            Layout::Patches { px, merge, .. } => px * merge,
            Layout::Strips { px, .. } => px,
            // A band lies within one row of tiles.
            Layout::Tiles { height, .. } if height == self.height => BAND_ROWS.min(height),
            Layout::Tiles { height, .. } => largest_divisor(height, BAND_ROWS),
        }
    }

    /// How many bands it has.
    pub fn bands(&self) -> usize {
        self.height.div_ceil(self.band_rows())
    }

    /// The places of each band in the output, all of which they make up.
    ///
    /// # Panics
    /// If `out` has another number of values.
    pub fn split<'o, T>(&self, out: &'o mut [T]) -> Vec<Places<'o, T>> {
        let bands = self.bands();
        let mut places: Vec<Places<'o, T>> = (0..bands).map(|_| Vec::new()).collect();
        let mut rest = out;
        let mut put = |band: usize, len: usize| {
            let place;
            (place, rest) = std::mem::take(&mut rest).split_at_mut(len);
            places[band].push(place);
        };
        match self.layout {
            Layout::Patches { .. } => {
                let values = self.values() / bands.max(1);
                (0..bands).for_each(|band| put(band, values));
            }
            Layout::Tiles { width, height } => {
                let rows = self.band_rows();
                let bands_of_tile = height.div_ceil(rows);
                for (tile_row, _) in self.tiles(width, height) {
                    for _ in 0..CHANNELS {
                        for band in 0..bands_of_tile {
                            let rows = rows.min(height - band * rows);
                            put(tile_row * bands_of_tile + band, rows * width);
                        }
                    }
                }
            }
            Layout::Strips { px, width, height } => {
                let bands_of_tile = height / px;
                for (tile_row, _) in self.tiles(width, height) {
                    for _ in 0..CHANNELS * px {
                        (0..bands_of_tile).for_each(|band| put(tile_row * bands_of_tile + band, width));
                    }
                }
            }
        }
        assert!(rest.is_empty(), "the output is larger than the canvas");
        places
    }

    // Row and column of each tile.
    fn tiles(&self, width: usize, height: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rows, columns) = (self.height / height, self.width / width);
        (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
    }

    /// Writes the places of one band from the rows of the picture that stand on it; rows of other bands may be there too.
    pub fn write<T: Element>(
        &self,
        cutter: &Cutter<'_>,
        band: usize,
        rows: Rows<'_>,
        places: &mut Places<'_, T>,
    ) {
        let top = band * self.band_rows();
        match self.layout {
            Layout::Patches { px, merge, inside } => {
                let Some(place) = places.first_mut() else { return };
                // What is interleaved may be taken in parts, so that they stay in the cache.
                let block_rows = match inside {
                    Inside::Hwc => largest_divisor(px, STAGE_BYTES / (px * CHANNELS)),
                    _ => px,
                };
                let parts = px / block_rows;
                let columns = self.width / px;
                let corners = (0..columns / merge).flat_map(move |square| {
                    (0..merge * merge * parts).map(move |at| {
                        let (inner, part) = (at / parts, at % parts);
                        let (row, column) = (inner / merge, square * merge + inner % merge);
                        (column * px, top + row * px + part * block_rows)
                    })
                });
                cutter.blocks(rows, inside.block(px, block_rows), corners, place);
            }
            Layout::Tiles { width, .. } => {
                for (tile, planes) in places.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate() {
                    let height = planes[0].len() / width;
                    let planes = planes.each_mut().map(|plane| &mut **plane);
                    cutter.planes(rows, (tile * width, top), (width, height), planes);
                }
            }
            Layout::Strips { px, width, .. } => {
                for (tile, lines) in places.chunks_exact_mut(CHANNELS * px).enumerate() {
                    let (reds, others) = lines.split_at_mut(px);
                    let (greens, blues) = others.split_at_mut(px);
                    for (row, ((red, green), blue)) in reds.iter_mut().zip(greens).zip(blues).enumerate() {
                        cutter.planes(rows, (tile * width, top + row), (width, 1), [red, green, blue]);
                    }
                }
            }
        }
    }
}

fn largest_divisor(whole: usize, most: usize) -> usize {
    (1..=most.clamp(1, whole)).rev().find(|&part| whole.is_multiple_of(part)).unwrap_or(1)
}
