//! How the horizontal pass by transposed tiles cuts rows.
//!
//! A tile holds groups of neighbouring pixels of one channel as columns, a lane for each row of a chunk; on that, the
//! horizontal pass is what the vertical one is on rows.

use super::windows::Windows;

/// What the columns of a tile may take, so that they stay in the L1 cache.
const TILE_BYTES: usize = 24 << 10;
// A transposing kernel makes up to so many pixels at a time, and may write as many past the end of a tile.
const MOST_PIXELS_AT_ONCE: usize = 16;

/// Weights of the horizontal pass, and its tiles.
#[derive(Debug)]
pub struct Tiles {
    /// The weights.
    pub windows: Windows,
    /// Output pixels of a tile, a multiple of 8.
    pub tile_pixels: usize,
    /// Bytes of the columns of the widest tile, with room for the last load.
    pub scratch_bytes: usize,
}

impl Tiles {
    /// Cuts tiles for an axis; a column, one group of every row of a chunk, takes `column_bytes`.
    pub fn new(windows: Windows, channels: usize, column_bytes: usize) -> Self {
        let columns = TILE_BYTES / (column_bytes * channels);
        let pixels = windows.windows().len();
        let per_pixel = (windows.span(&(0..pixels)).len() as f64 / pixels as f64).max(1e-3);
        let free = columns.saturating_sub(windows.most_groups()) as f64;
        let tile_pixels = ((free / per_pixel) as usize).clamp(8, 256) & !7;
        // Strips may begin at any multiple of 8 pixels.
        let spans =
            (0..pixels).step_by(8).map(|start| windows.span(&(start..pixels.min(start + tile_pixels))).len());
        let most_groups = spans.max().unwrap_or(0) + MOST_PIXELS_AT_ONCE / windows.group_len();
        Self { tile_pixels, scratch_bytes: most_groups * channels * column_bytes, windows }
    }

    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.windows.size_bytes()
    }
}
