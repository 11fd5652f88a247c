//! The output of one view: rows of its picture go in, whole or by bands, and become values in their places.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::common::cut::{Background, Cutter, PAST_CACHE_BYTES, Rows};
use crate::common::normalise::{Element, F16, Normaliser};
use crate::common::simd;
use crate::common::threads;
use crate::error::{CoreError, Result};
use crate::recipe::layout::{Canvas, Places};
use crate::recipe::{Place, View};
use crate::tensor::DType;

// A picture is split over threads only if each gets this much to write.
const PART_BYTES: usize = 1 << 20;

/// The output of one view, which bands may be written to from any thread.
pub struct ViewOutput<'o> {
    place: Place,
    width: usize,
    height: usize,
    canvas: Canvas,
    out_bytes: usize,
    bands: Box<dyn WriteBand + 'o>,
}

trait WriteBand: Sync {
    fn write(&self, band: usize, rows: Rows<'_>);
}

struct Bands<'o, T> {
    canvas: Canvas,
    cutter: Cutter<'o>,
    // A lock each, since a file that is decoded anew has its bands written anew.
    places: Vec<Mutex<Places<'o, T>>>,
}

impl<T: Element> WriteBand for Bands<'_, T> {
    fn write(&self, band: usize, rows: Rows<'_>) {
        let mut places = self.places[band].lock().unwrap_or_else(PoisonError::into_inner);
        self.canvas.write(&self.cutter, band, rows, &mut places);
    }
}

impl<'o> ViewOutput<'o> {
    /// The output of `view` in `out`, which holds exactly its values.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if it does not, or is not aligned to them, or a SIMD level is forced that the CPU
    /// lacks.
    pub fn new(
        view: &View,
        normaliser: &'o Normaliser,
        background: Background,
        dtype: DType,
        out: &'o mut [u8],
    ) -> Result<Self> {
        let (canvas, out_bytes) = (view.canvas(), out.len());
        if out_bytes != canvas.values().saturating_mul(dtype.size_bytes()) {
            return Err(CoreError::argument(format!(
                "{out_bytes} bytes of output do not hold {} values",
                canvas.values()
            )));
        }
        let past_cache = out_bytes >= PAST_CACHE_BYTES;
        let cutter = Cutter { normaliser, level: simd::level()?, background, past_cache };
        let bands = match dtype {
            DType::F32 => bands::<f32>(canvas, cutter, out)?,
            DType::Bf16 => bands::<u16>(canvas, cutter, out)?,
            DType::F16 => bands::<F16>(canvas, cutter, out)?,
            _ => return Err(CoreError::Internal(format!("no normalised {}", dtype.name()))),
        };
        let (width, height) = (view.keep.width, view.keep.height);
        Ok(Self { place: view.place, width, height, canvas, out_bytes, bands })
    }

    /// How many rows of the picture make a band, if its bands are those of the canvas.
    pub fn band_rows(&self) -> Option<usize> {
        let rows = self.canvas.band_rows();
        self.place.top.is_multiple_of(rows).then_some(rows)
    }

    /// Writes a band: rows of the picture from `first_row` on, the first of a band.
    pub fn write_band(&self, first_row: usize, bytes: &[u8]) {
        let (row_bytes, top) = (self.width * 3, self.place.top + first_row);
        let height = bytes.len() / row_bytes;
        let rows = Rows { bytes, row_bytes, width: self.width, height, left: self.place.left, top };
        self.bands.write(top / self.canvas.band_rows(), rows);
    }

    /// Writes the bands of the canvas that no row of the picture stands on.
    pub fn write_empty_bands(&self) {
        let rows = self.canvas.band_rows();
        let above = 0..self.place.top / rows;
        let below = (self.place.top + self.height).div_ceil(rows)..self.canvas.bands();
        let nothing = Rows { bytes: &[], row_bytes: 0, width: 0, height: 0, left: 0, top: 0 };
        above.chain(below).for_each(|band| self.bands.write(band, nothing));
    }

    /// Writes all bands from all rows of the picture, which are `row_bytes` apart; in the rayon pool of the calling
    /// thread, if there is enough to do.
    pub fn write_all(&self, bytes: &[u8], row_bytes: usize) {
        let Self { place, width, height, .. } = *self;
        let rows = Rows { bytes, row_bytes, width, height, left: place.left, top: place.top };
        let bands = self.canvas.bands();
        let write = |band| self.bands.write(band, rows);
        if threads::spread() > 1 && self.out_bytes > PART_BYTES {
            let part = (PART_BYTES / (self.out_bytes / bands.max(1)).max(1)).max(1);
            (0..bands).into_par_iter().with_min_len(part).for_each(write);
        } else {
            (0..bands).for_each(write);
        }
    }
}

fn bands<'o, T: Element>(
    canvas: Canvas,
    cutter: Cutter<'o>,
    out: &'o mut [u8],
) -> Result<Box<dyn WriteBand + 'o>> {
    let out: &mut [T] = bytemuck::try_cast_slice_mut(out)
        .map_err(|_| CoreError::argument("the output is not aligned to its element type"))?;
    let places = canvas.split(out).into_iter().map(Mutex::new).collect();
    Ok(Box::new(Bands { canvas, cutter, places }))
}
