//! One view of a picture: a cut of it, resized, and placed on a canvas that becomes values.

use super::arithmetic::{Arithmetic, Backend};
use super::layout::{Canvas, Layout};
use super::load::Source;
use super::size;
use crate::common::cut::Background;
use crate::common::resize::{self, Filter};
use crate::error::{CoreError, Result};

/// A rectangle of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Rect {
    /// All of a picture.
    pub fn whole(width: usize, height: usize) -> Self {
        Self { left: 0, top: 0, width, height }
    }

    fn is_within(&self, width: usize, height: usize) -> bool {
        self.left.checked_add(self.width).is_some_and(|end| end <= width)
            && self.top.checked_add(self.height).is_some_and(|end| end <= height)
    }
}

/// What stands on the canvas around the picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Pixels of this colour, which are normalised as the picture is.
    Colour([u8; 3]),
    /// A value in place of a rescaled byte, normalised as those are: Inkling's -1/255.
    Scaled(f32),
    /// A value in place of a normalised one.
    Value(f32),
}

impl Fill {
    /// What the kernels put around the picture.
    pub fn background(self, arithmetic: &Arithmetic) -> Background {
        match self {
            Self::Colour(colour) => Background::Colour(colour),
            Self::Scaled(value) => Background::Values(arithmetic.of_scaled(value)),
            Self::Value(value) => Background::Values([value; 3]),
        }
    }
}

/// A canvas, and where the picture stands on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Width of the canvas, in pixels.
    pub width: usize,
    /// Height of the canvas, in pixels.
    pub height: usize,
    /// Columns on the left of the picture.
    pub left: usize,
    /// Rows above the picture.
    pub top: usize,
    /// What is around it.
    pub fill: Fill,
}

/// One view of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The part of the source that is resized.
    pub source: Rect,
    /// A size that it is resized to before the resize, `(width, height)`, by the same filter.
    pub first: Option<(usize, usize)>,
    /// Width after the resize.
    pub width: usize,
    /// Height after the resize.
    pub height: usize,
    /// The filter of the resize. A view that keeps its size is not resized.
    pub filter: Filter,
    /// Whose resize.
    pub backend: Backend,
    /// The part of the resized picture that is used.
    pub keep: Rect,
    /// The canvas.
    pub place: Place,
    /// How the canvas becomes values.
    pub layout: Layout,
    /// Which of the plan's tensors it goes to, behind the views before it.
    pub tensor: usize,
    /// Values of the tensor behind it that are zero: rows that fill up those of a tile.
    pub zeros_behind: usize,
}

impl View {
    /// All of the source, in its own size, cut by `layout`; the methods change that.
    pub fn whole(source: Source, layout: Layout) -> Self {
        let Source { width, height, .. } = source;
        Self {
            source: Rect::whole(width, height),
            first: None,
            width,
            height,
            filter: Filter::Bicubic,
            backend: Backend::Pil,
            keep: Rect::whole(width, height),
            place: Place { width, height, left: 0, top: 0, fill: Fill::Colour([0; 3]) },
            layout,
            tensor: 0,
            zeros_behind: 0,
        }
    }

    /// Only a part of the source.
    #[must_use]
    pub fn of(self, source: Rect) -> Self {
        let (width, height) = (source.width, source.height);
        Self { source, ..self }.sized(width, height)
    }

    /// Resized to `(width, height)` pixels.
    #[must_use]
    pub fn resized(self, (width, height): (usize, usize), filter: Filter, backend: Backend) -> Self {
        Self { filter, backend, ..self }.sized(width, height)
    }

    fn sized(self, width: usize, height: usize) -> Self {
        let place = Place { width, height, left: 0, top: 0, ..self.place };
        Self { width, height, keep: Rect::whole(width, height), place, ..self }
    }

    /// As [`Self::resized`], but what it is given was resized to this size before, by the same filter.
    #[must_use]
    pub fn squashed_first(self, size: (usize, usize)) -> Self {
        Self { first: Some(size), ..self }
    }

    /// Only a part of what was resized.
    #[must_use]
    pub fn cropped(self, keep: Rect) -> Self {
        let place = Place { width: keep.width, height: keep.height, left: 0, top: 0, ..self.place };
        Self { keep, place, ..self }
    }

    /// The middle `(width, height)` of what was resized; an odd rest is cut off more at the right and the bottom.
    #[must_use]
    pub fn centre_cropped(self, (width, height): (usize, usize)) -> Self {
        let left = self.width.saturating_sub(width) / 2;
        let top = self.height.saturating_sub(height) / 2;
        self.cropped(Rect { left, top, width, height })
    }

    /// On a canvas of `(width, height)` pixels, in its upper left corner.
    #[must_use]
    pub fn padded(self, canvas: (usize, usize), fill: Fill) -> Self {
        self.placed(canvas, (0, 0), fill)
    }

    /// On a canvas of `(width, height)` pixels, with so many columns on the left and rows above.
    #[must_use]
    pub fn placed(self, (width, height): (usize, usize), (left, top): (usize, usize), fill: Fill) -> Self {
        Self { place: Place { width, height, left, top, fill }, ..self }
    }

    /// As [`Self::placed`], in the middle; an odd rest is padded more at the right and the bottom.
    #[must_use]
    pub fn centred(self, canvas: (usize, usize), fill: Fill) -> Self {
        let left = canvas.0.saturating_sub(self.keep.width) / 2;
        let top = canvas.1.saturating_sub(self.keep.height) / 2;
        self.placed(canvas, (left, top), fill)
    }

    /// As [`Self::placed`], in the middle as `ImageOps.pad` of Pillow finds it: half the rest, rounded half to even.
    #[must_use]
    pub fn centred_as_pillow(self, canvas: (usize, usize), fill: Fill) -> Self {
        let half =
            |whole: usize, part: usize| (whole.saturating_sub(part) as f64 * 0.5).round_ties_even() as usize;
        let corner = (half(canvas.0, self.keep.width), half(canvas.1, self.keep.height));
        self.placed(canvas, corner, fill)
    }

    /// Fitted into `canvas` and put in its middle on `colour`, as `ImageOps.pad` of Pillow does it.
    ///
    /// # Errors
    /// As [`size::contain`].
    pub fn fitted(self, canvas: (usize, usize), filter: Filter, colour: [u8; 3]) -> Result<Self> {
        let size = size::contain((self.source.width, self.source.height), canvas)?;
        Ok(self.resized(size, filter, Backend::Pil).centred_as_pillow(canvas, Fill::Colour(colour)))
    }

    /// With so many zeros behind it.
    #[must_use]
    pub fn followed_by_zeros(self, zeros_behind: usize) -> Self {
        Self { zeros_behind, ..self }
    }

    /// Into another tensor than the first.
    #[must_use]
    pub fn into_tensor(self, tensor: usize) -> Self {
        Self { tensor, ..self }
    }

    /// The resize that it takes, if it takes one.
    pub fn resize(&self) -> Option<(resize::Size, Filter, resize::Arithmetic)> {
        let source = self.first.unwrap_or((self.source.width, self.source.height));
        self.step(source, (self.width, self.height))
    }

    /// The resize before that, if it takes one.
    pub fn first_resize(&self) -> Option<(resize::Size, Filter, resize::Arithmetic)> {
        self.first.and_then(|to| self.step((self.source.width, self.source.height), to))
    }

    fn step(
        &self,
        from: (usize, usize),
        to: (usize, usize),
    ) -> Option<(resize::Size, Filter, resize::Arithmetic)> {
        let size = resize::Size { in_width: from.0, in_height: from.1, out_width: to.0, out_height: to.1 };
        let arithmetic = match self.backend {
            Backend::Torchvision => resize::Arithmetic::Aten,
            Backend::Pil => resize::Arithmetic::Pillow(resize::pass_order()),
        };
        (from != to).then_some((size, self.filter, arithmetic))
    }

    /// Pixels that late normalising needs of it.
    pub fn kept_pixels(&self) -> usize {
        self.keep.width.saturating_mul(self.keep.height)
    }

    /// Refuses rectangles that reach out of what they are cut from, and a canvas that is no whole number of blocks.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`].
    pub fn check(&self, source: Source) -> Result<()> {
        let Self { source: cut, keep, place, .. } = self;
        let is_sound = cut.is_within(source.width, source.height)
            && keep.is_within(self.width, self.height)
            && Rect { left: place.left, top: place.top, ..*keep }.is_within(place.width, place.height);
        if !is_sound {
            return Err(CoreError::argument(format!(
                "{} x {} pixels have no such view: {self:?}",
                source.width, source.height
            )));
        }
        self.layout.check(place.width, place.height)
    }
}

impl View {
    /// Its canvas under its layout.
    pub fn canvas(&self) -> Canvas {
        Canvas { layout: self.layout, width: self.place.width, height: self.place.height }
    }

    /// How many values it becomes.
    pub fn values(&self) -> usize {
        self.canvas().values()
    }
}
