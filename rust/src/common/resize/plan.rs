//! From sizes to passes with their weights, which are kept from image to image.

use std::sync::Arc;
use std::time::Instant;

use super::cache::Cache;
use super::coefficients::Coefficients;
use super::engine::{Passes, Target};
use super::kernels::{self, Horizontal};
use super::layout::Rows;
use super::windows::Windows;
use super::{Arithmetic, Filter, Size, scalar};
use crate::common::bands::Bands;
use crate::common::memory::Buffer;
use crate::common::simd::Level;
use crate::error::Result;

/// What the tables of each axis may take.
const CACHE_BYTES: usize = 32 << 20;

/// All that the weights of an axis depend on.
#[derive(Clone, Copy, PartialEq)]
struct Axis {
    level: Level,
    arithmetic: Arithmetic,
    filter: Filter,
    from: usize,
    to: usize,
}

static VERTICAL: Cache<Axis, Windows> = Cache::new(CACHE_BYTES);
static HORIZONTAL: Cache<(Axis, usize), Horizontal> = Cache::new(CACHE_BYTES);

/// Resizes with the kernels of a level; lengths have been checked. Returns the seconds that its threads worked, in
/// total.
#[allow(clippy::too_many_arguments)]
pub fn resize(
    level: Level,
    source: &[u8],
    channels: usize,
    size: Size,
    filter: Filter,
    arithmetic: Arithmetic,
    bands: Option<Bands>,
    out: &mut [u8],
) -> Result<f64> {
    let Size { in_width, in_height, out_width, out_height } = size;
    let row_bytes = in_width * channels;
    let rows = Rows { bytes: source, row_bytes, count: in_height, phase: 0 };
    let target = Target { rows: out_height, row_bytes: out_width * channels, bands };
    let (resizes_x, resizes_y) = (in_width != out_width, in_height != out_height);
    if level == Level::Scalar || !(resizes_x || resizes_y) {
        return by_reference(source, channels, size, filter, arithmetic, target, out);
    }
    let axis = |from, to| Axis { level, arithmetic, filter, from, to };
    let vertical = resizes_y.then(|| vertical_weights(axis(in_height, out_height)));
    let horizontal = resizes_x.then(|| horizontal_weights(axis(in_width, out_width), channels));
    // No known filter has weights out of the kernels' range.
    let (Some(vertical), Some(horizontal)) = (transpose(vertical), transpose(horizontal)) else {
        return by_reference(source, channels, size, filter, arithmetic, target, out);
    };
    let passes = |horizontal, vertical| Passes { level, channels, horizontal, vertical };
    if resizes_x && resizes_y && arithmetic.vertical_first(&size) {
        let mut middle = Buffer::take(row_bytes * out_height)?;
        let first = Target { row_bytes, bands: None, ..target };
        let first_s = passes(None, vertical).run(rows, first, middle.bytes_mut())?;
        let rows = Rows { bytes: middle.bytes(), row_bytes, count: out_height, phase: 0 };
        return Ok(first_s + passes(horizontal, None).run(rows, target, out)?);
    }
    passes(horizontal, vertical).run(rows, target, out)
}

fn by_reference(
    source: &[u8],
    channels: usize,
    size: Size,
    filter: Filter,
    arithmetic: Arithmetic,
    target: Target,
    out: &mut [u8],
) -> Result<f64> {
    let started = Instant::now();
    let keeps_size = (size.in_width, size.in_height) == (size.out_width, size.out_height);
    match target.bands {
        None if keeps_size => out.copy_from_slice(source),
        None => scalar::resize(source, channels, size, filter, arithmetic, out),
        Some(bands) if keeps_size => bands.finish_rows(0, source, target.row_bytes)?,
        Some(bands) => {
            let mut rows = Buffer::take(target.rows * target.row_bytes)?;
            scalar::resize(source, channels, size, filter, arithmetic, rows.bytes_mut());
            bands.finish_rows(0, rows.bytes(), target.row_bytes)?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

// `Some(None)`: that pass is not needed. `None`: it is, but there is no table for it.
#[allow(clippy::option_option)]
fn transpose<T>(table: Option<Option<T>>) -> Option<Option<T>> {
    match table {
        None => Some(None),
        Some(None) => None,
        Some(Some(table)) => Some(Some(table)),
    }
}

fn vertical_weights(axis: Axis) -> Option<Arc<Windows>> {
    let make = || kernels::vertical_weights(axis.level, &axis.coefficients());
    VERTICAL.get(axis, Windows::size_bytes, make)
}

fn horizontal_weights(axis: Axis, channels: usize) -> Option<Arc<Horizontal>> {
    let make =
        || kernels::horizontal_weights(axis.level, &axis.coefficients(), channels, axis.from * channels);
    HORIZONTAL.get((axis, channels), Horizontal::size_bytes, make)
}

impl Axis {
    fn coefficients(&self) -> Coefficients {
        self.arithmetic.coefficients(self.from, self.to, self.filter)
    }
}
