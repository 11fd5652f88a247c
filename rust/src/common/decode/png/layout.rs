//! Pillow's modes and raw modes for the depths and colour types of PNG, and the geometry of Adam7.

/// Pillow's mode of the opened image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Bilevel,
    Grey,
    Grey16,
    GreyAlpha,
    Palette,
    Rgb,
    Rgba,
}

/// What a stored pixel is: depth and colour type in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Grey1,
    Grey2,
    Grey4,
    Grey8,
    Grey16,
    Rgb8,
    Rgb16,
    Palette1,
    Palette2,
    Palette4,
    Palette8,
    GreyAlpha8,
    GreyAlpha16,
    Rgba8,
    Rgba16,
}

impl Layout {
    /// The layouts that Pillow knows; it skips the image data of any other.
    pub(super) fn new(depth_bits: u8, colour_type: u8) -> Option<Self> {
        Some(match (depth_bits, colour_type) {
            (1, 0) => Self::Grey1,
            (2, 0) => Self::Grey2,
            (4, 0) => Self::Grey4,
            (8, 0) => Self::Grey8,
            (16, 0) => Self::Grey16,
            (8, 2) => Self::Rgb8,
            (16, 2) => Self::Rgb16,
            (1, 3) => Self::Palette1,
            (2, 3) => Self::Palette2,
            (4, 3) => Self::Palette4,
            (8, 3) => Self::Palette8,
            (8, 4) => Self::GreyAlpha8,
            (16, 4) => Self::GreyAlpha16,
            (8, 6) => Self::Rgba8,
            (16, 6) => Self::Rgba16,
            _ => return None,
        })
    }

    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Grey1 => Mode::Bilevel,
            Self::Grey2 | Self::Grey4 | Self::Grey8 => Mode::Grey,
            Self::Grey16 => Mode::Grey16,
            Self::Rgb8 | Self::Rgb16 => Mode::Rgb,
            Self::Palette1 | Self::Palette2 | Self::Palette4 | Self::Palette8 => Mode::Palette,
            Self::GreyAlpha8 => Mode::GreyAlpha,
            Self::GreyAlpha16 | Self::Rgba8 | Self::Rgba16 => Mode::Rgba,
        }
    }

    pub(super) fn pixel_bits(self) -> usize {
        match self {
            Self::Grey1 | Self::Palette1 => 1,
            Self::Grey2 | Self::Palette2 => 2,
            Self::Grey4 | Self::Palette4 => 4,
            Self::Grey8 | Self::Palette8 => 8,
            Self::Grey16 | Self::GreyAlpha8 => 16,
            Self::Rgb8 => 24,
            Self::GreyAlpha16 | Self::Rgba8 => 32,
            Self::Rgb16 => 48,
            Self::Rgba16 => 64,
        }
    }

    /// Distance of a byte to its left neighbour in the filters.
    pub(super) fn filter_bytes(self) -> usize {
        self.pixel_bits().div_ceil(8)
    }

    pub(super) fn row_bytes(self, width_px: usize) -> usize {
        (width_px * self.pixel_bits()).div_ceil(8)
    }
}

/// One of the seven passes of Adam7.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    pub(super) first_row: usize,
    pub(super) row_step: usize,
    pub(super) first_column: usize,
    pub(super) column_step: usize,
}

pub(super) const ADAM7: [Pass; 7] = [
    pass(0, 8, 0, 8),
    pass(0, 8, 4, 8),
    pass(4, 8, 0, 4),
    pass(0, 4, 2, 4),
    pass(2, 4, 0, 2),
    pass(0, 2, 1, 2),
    pass(1, 2, 0, 1),
];

const fn pass(first_row: usize, row_step: usize, first_column: usize, column_step: usize) -> Pass {
    Pass { first_row, row_step, first_column, column_step }
}

impl Pass {
    pub(super) fn columns(self, width_px: usize) -> usize {
        (width_px + self.column_step - 1).saturating_sub(self.first_column) / self.column_step
    }
}
