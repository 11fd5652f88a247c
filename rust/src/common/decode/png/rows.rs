//! Filtered rows to their place in the picture.

use super::broken;
use super::expand::{Palette, expand};
use super::layout::{ADAM7, Layout, Pass};
use super::unfilter::{group_rows, prefers_group, unfilter, unfilter_group};
use crate::common::simd::Level;
use crate::error::Result;

/// The part of the picture that the data covers, in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// Takes the rows one by one.
pub(super) struct Rows<'a> {
    layout: Layout,
    palette: &'a Palette,
    area: Area,
    picture: &'a mut [u8],
    picture_width: usize,
    /// Pass of an interlaced picture.
    pass: Option<usize>,
    row: usize,
    above: Vec<u8>,
    current: Vec<u8>,
    colours: Vec<u8>,
    level: Level,
    /// Rows that are undone at once, if any.
    group_rows: Option<usize>,
    group: Vec<u8>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        layout: Layout,
        palette: &'a Palette,
        area: Area,
        interlaced: bool,
        picture: &'a mut [u8],
        picture_width: usize,
        level: Level,
    ) -> Self {
        let bytes = layout.row_bytes(area.width);
        let group_rows = group_rows(level, layout.filter_bytes())
            .filter(|rows| !interlaced && area.width == picture_width && *rows < area.width);
        let scratch_rows = if layout == Layout::Rgb8 { 0 } else { group_rows.unwrap_or(0) };
        let colours = if interlaced { area.width * 3 } else { 0 };
        Self {
            layout,
            palette,
            area,
            picture,
            picture_width,
            pass: interlaced.then_some(0),
            row: 0,
            above: vec![0; bytes],
            current: vec![0; bytes],
            colours: vec![0; colours],
            level,
            group_rows,
            group: vec![0; scratch_rows * bytes],
        }
    }

    fn pass(&self) -> Option<Pass> {
        self.pass.and_then(|pass| ADAM7.get(pass).copied())
    }

    /// Bytes of the next row without its filter byte.
    pub(super) fn next_bytes(&self) -> usize {
        let columns = self.pass().map_or(self.area.width, |pass| pass.columns(self.area.width));
        self.layout.row_bytes(columns)
    }

    /// Whether all rows were taken.
    pub(super) fn is_complete(&self) -> bool {
        self.row >= self.area.height
    }

    /// Bytes of all rows with their filter bytes.
    pub(super) fn total_bytes(layout: Layout, area: Area, interlaced: bool) -> usize {
        if !interlaced {
            return area.height * (layout.row_bytes(area.width) + 1);
        }
        ADAM7
            .iter()
            .map(|pass| {
                let rows = (area.height + pass.row_step - 1).saturating_sub(pass.first_row) / pass.row_step;
                let columns = pass.columns(area.width);
                if columns == 0 { 0 } else { rows * (layout.row_bytes(columns) + 1) }
            })
            .sum()
    }

    /// Takes a row or a group of rows from the start of `filtered`; how many bytes that were, 0 if it is too short.
    pub(super) fn push_some(&mut self, filtered: &[u8]) -> Result<usize> {
        let bytes = self.next_bytes() + 1;
        if self.is_complete() || filtered.len() < bytes {
            return Ok(0);
        }
        if let Some(rows) = self.group_rows
            && let Some(group) = filtered.get(..rows * bytes)
            && self.row + rows <= self.area.height
            && prefers_group(group.chunks_exact(bytes).map(|row| row[0]))
            && self.push_group(group, rows)
        {
            return Ok(rows * bytes);
        }
        self.push(&filtered[..bytes])?;
        Ok(bytes)
    }

    fn push_group(&mut self, filtered: &[u8], rows: usize) -> bool {
        let (layout, level) = (self.layout, self.level);
        let bytes = self.picture_width * 3;
        let (before, from_here) = self.picture.split_at_mut((self.area.top + self.row) * bytes);
        let pixels = &mut from_here[..rows * bytes];
        if layout == Layout::Rgb8 {
            let above = if self.row == 0 { &self.above[..] } else { &before[before.len() - bytes..] };
            if !unfilter_group(level, layout.filter_bytes(), filtered, above, pixels) {
                return false;
            }
        } else {
            if !unfilter_group(level, layout.filter_bytes(), filtered, &self.above, &mut self.group) {
                return false;
            }
            let stored_bytes = self.above.len();
            let group = self.group.chunks_exact(stored_bytes);
            for (stored, pixels) in group.zip(pixels.chunks_exact_mut(bytes)) {
                expand(layout, self.palette, stored, pixels);
            }
            self.above.copy_from_slice(&self.group[(rows - 1) * stored_bytes..]);
        }
        self.row += rows;
        true
    }

    /// Takes the next row: its filter byte and its bytes.
    pub(super) fn push(&mut self, filtered: &[u8]) -> Result<()> {
        let Some((&filter, filtered)) = filtered.split_first() else { return Ok(()) };
        let known = match self.pass() {
            Some(pass) => self.push_scattered(pass, filter, filtered),
            None => self.push_whole(filter, filtered),
        };
        if known { Ok(()) } else { Err(broken("a row has an unknown filter")) }
    }

    fn push_whole(&mut self, filter: u8, filtered: &[u8]) -> bool {
        let bytes = self.area.width * 3;
        let start = ((self.area.top + self.row) * self.picture_width + self.area.left) * 3;
        let pixel_bytes = self.layout.filter_bytes();
        let known;
        if self.layout == Layout::Rgb8 {
            let (before, from_here) = self.picture.split_at_mut(start);
            let above = match self.row {
                0 => &self.above[..],
                _ => &before[start - self.picture_width * 3..][..bytes],
            };
            known = unfilter(filter, pixel_bytes, filtered, above, &mut from_here[..bytes]);
        } else {
            known = unfilter(filter, pixel_bytes, filtered, &self.above, &mut self.current);
            expand(self.layout, self.palette, &self.current, &mut self.picture[start..start + bytes]);
            std::mem::swap(&mut self.above, &mut self.current);
        }
        self.row += 1;
        known
    }

    // Pillow puts interlaced rows at the picture's own origin, whatever the area.
    fn push_scattered(&mut self, pass: Pass, filter: u8, filtered: &[u8]) -> bool {
        let bytes = filtered.len();
        let columns = pass.columns(self.area.width);
        let known = unfilter(
            filter,
            self.layout.filter_bytes(),
            filtered,
            &self.above[..bytes],
            &mut self.current[..bytes],
        );
        let colours = &mut self.colours[..columns * 3];
        expand(self.layout, self.palette, &self.current[..bytes], colours);
        let start = self.row * self.picture_width * 3;
        let row = self.picture[start..start + self.area.width * 3].as_chunks_mut::<3>().0;
        let targets = row[pass.first_column..].iter_mut().step_by(pass.column_step);
        for (target, colour) in targets.zip(colours.as_chunks::<3>().0) {
            *target = *colour;
        }
        std::mem::swap(&mut self.above, &mut self.current);
        self.row += pass.row_step;
        self.skip_empty_passes();
        known
    }

    fn skip_empty_passes(&mut self) {
        while self.row >= self.area.height || self.next_bytes() == 0 {
            let Some(next) = self.pass.map(|pass| pass + 1).filter(|next| *next < ADAM7.len()) else {
                self.row = self.area.height;
                return;
            };
            self.pass = Some(next);
            self.row = ADAM7[next].first_row;
            self.above.fill(0);
        }
    }
}
