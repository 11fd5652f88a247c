//! Gemma 4's size: as many pooled squares as the budget of soft tokens allows, in the picture's own aspect.

use crate::error::{CoreError, Result};

/// `(width, height)` in pixels, multiples of `square_px`, of at most `most_squares` squares.
///
/// As `get_aspect_ratio_preserving_size` of transformers, in doubles. Small pictures are enlarged.
///
/// # Errors
/// [`CoreError::InvalidArgument`] for a picture so thin that it becomes nothing or too much.
pub fn soft_tokens(
    (width, height): (usize, usize),
    square_px: usize,
    most_squares: usize,
) -> Result<(usize, usize)> {
    let refuse = || {
        CoreError::argument(format!(
            "{width} x {height} pixels are too thin for {most_squares} squares of {square_px} pixels; crop or pad \
             the image"
        ))
    };
    if width == 0 || height == 0 {
        return Err(refuse());
    }
    let budget_px = (most_squares * square_px * square_px) as f64;
    let factor = (budget_px / (width as f64 * height as f64)).sqrt();
    let whole = |side: usize| (factor * side as f64 / square_px as f64).floor() as usize * square_px;
    let longest = most_squares * square_px;
    let stretched = |long: usize, short: usize| (long / short).saturating_mul(square_px).min(longest);
    let resized = match (whole(width), whole(height)) {
        (0, 0) => return Err(refuse()),
        (_, 0) => (stretched(width, height), square_px),
        (0, _) => (square_px, stretched(height, width)),
        size => size,
    };
    if (resized.0 * resized.1) as f64 > budget_px { Err(refuse()) } else { Ok(resized) }
}
