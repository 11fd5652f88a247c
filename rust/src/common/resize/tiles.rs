//! How the horizontal pass by transposed tiles cuts rows.
//!
//! A tile holds quads of neighbouring pixels of one channel as columns, a lane for each row of a chunk; on that, the
//! horizontal pass is what the vertical one is on rows.

use super::kernels::CHUNK_QUADS;
use super::windows::{Window, Windows};

/// Bytes of a column: one quad of every row of a chunk.
pub const COLUMN_BYTES: usize = 16 * CHUNK_QUADS;
/// What the columns of a tile may take, so that they stay in the L1 cache.
const TILE_BYTES: usize = 16 << 10;

/// Weights of the horizontal pass, and its tiles.
#[derive(Debug)]
pub struct Tiles {
    /// The weights.
    pub windows: Windows,
    /// Output pixels of a tile, a multiple of 4.
    pub tile_pixels: usize,
    /// Bytes of the columns of the widest tile, with room for the last load.
    pub scratch_bytes: usize,
}

impl Tiles {
    /// Cuts tiles for an axis.
    pub fn new(windows: Windows, channels: usize) -> Self {
        let columns = TILE_BYTES / (COLUMN_BYTES * channels);
        let per_pixel = (span(&windows.windows).1 as f64 / windows.windows.len() as f64).max(1e-3);
        let free = columns.saturating_sub(windows.most_quads()) as f64;
        let tile_pixels = ((free / per_pixel) as usize).clamp(4, 256) & !3;
        // Strips may begin at any multiple of 4 pixels.
        let spans = (0..windows.windows.len()).step_by(4).map(|start| {
            let (first, end) = span(&windows.windows[start..windows.windows.len().min(start + tile_pixels)]);
            end - first
        });
        let scratch_bytes = (spans.max().unwrap_or(0) + 4) * channels * COLUMN_BYTES;
        Self { windows, tile_pixels, scratch_bytes }
    }

    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.windows.size_bytes()
    }
}

/// The quads that some windows use: first, and one past the last.
pub fn span(windows: &[Window]) -> (usize, usize) {
    let first = windows.iter().map(|window| window.first).min().unwrap_or(0);
    let end = windows.iter().map(|window| window.first + window.quads).max().unwrap_or(0);
    (first, end)
}
