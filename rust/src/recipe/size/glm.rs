//! The sizes of GLM's vision models. They count the frames of a temporal patch, also for a still picture.

use super::navit::up_to_multiple;
use super::smart;
use crate::error::{CoreError, Result};
use crate::recipe::checkpoint::PixelBudget;

/// `(width, height)` of GLM-4V: as `smart_resize`, but a side below `factor` first grows to it, and pixels count
/// once for each of `frames`.
///
/// As `smart_resize` of transformers' `glm4v`.
///
/// # Errors
/// As [`smart::smart_resize`].
pub fn glm4v(
    (width, height): (usize, usize),
    factor: usize,
    frames: usize,
    budget: PixelBudget,
) -> Result<(usize, usize)> {
    let shorter = width.min(height);
    let grown = |side: usize| match shorter {
        0 => 0,
        _ if shorter >= factor => side,
        _ => (side as f64 * (factor as f64 / shorter as f64)) as usize,
    };
    let (height, width) = smart::smart_resize_frames(
        grown(height),
        grown(width),
        factor,
        frames,
        budget.shortest_edge,
        budget.longest_edge,
    )?;
    Ok((width, height))
}

/// GLM-5 Next's canvas and what stands in its upper left corner, both `(width, height)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fitted {
    /// Multiples of the factor, within the budget.
    pub canvas: (usize, usize),
    /// The resized picture.
    pub content: (usize, usize),
}

/// The size of GLM-5 Next: sides up to multiples of `factor`; a canvas over the budget is that of the tallest content
/// that fits, found by bisection. Pixels count once for each of `frames`.
///
/// As transformers' `glm5_next`, in doubles.
///
/// # Errors
/// [`CoreError::InvalidArgument`] for an empty picture, or where not even one square fits the budget.
pub fn glm5_next(
    (width, height): (usize, usize),
    factor: usize,
    frames: usize,
    budget: PixelBudget,
) -> Result<Fitted> {
    let volume = |wide: usize, high: usize| frames as u64 * wide as u64 * high as u64;
    let aligned = |side: usize| up_to_multiple(side, factor);
    if width == 0 || height == 0 || budget.longest_edge < volume(factor, factor) {
        return Err(CoreError::argument(format!(
            "{width} x {height} pixels do not fit a budget of {} pixels; raise max_image_tokens",
            budget.longest_edge
        )));
    }
    let mut canvas = (aligned(width), aligned(height));
    if volume(canvas.0, canvas.1) < budget.shortest_edge {
        let grow = (budget.shortest_edge as f64 / volume(width, height) as f64).sqrt();
        let grown = |side: usize| aligned(((side as f64 * grow).ceil() as usize).max(1));
        canvas = (grown(width), grown(height));
    }
    if volume(canvas.0, canvas.1) > budget.longest_edge {
        let (mut low, mut high) = (1, height);
        canvas = (factor, factor);
        while low <= high {
            let content = (low + high) / 2;
            let wide = ((width as f64 * content as f64 / height as f64).floor() as usize).max(1);
            let candidate = (aligned(wide), aligned(content));
            if volume(candidate.0, candidate.1) <= budget.longest_edge {
                (canvas, low) = (candidate, content + 1);
            } else {
                high = content - 1;
            }
        }
    }
    let mut scale = (canvas.1 as f64 / height as f64).min(canvas.0 as f64 / width as f64);
    if volume(width, height) >= budget.shortest_edge {
        scale = scale.min(1.0);
    }
    let content = |side: usize, most: usize| ((side as f64 * scale).floor() as usize).min(most).max(1);
    Ok(Fitted { canvas, content: (content(width, canvas.0), content(height, canvas.1)) })
}

/// The size of GLM-Image: half of what brings the sides between the square roots of the budget.
///
/// As `smart_resize` of transformers' `glm_image`, in doubles.
///
/// # Errors
/// [`CoreError::InvalidArgument`] for a side below `factor`, or sides over 4 : 1.
pub fn glm_image(
    (width, height): (usize, usize),
    factor: usize,
    budget: PixelBudget,
) -> Result<(usize, usize)> {
    const MOST_ASPECT: f64 = 4.0;
    let (shorter, longer) = (width.min(height) as f64, width.max(height) as f64);
    if width.min(height) < factor {
        return Err(CoreError::argument(format!(
            "{width} x {height} pixels have a side below {factor}; enlarge the image first"
        )));
    }
    if longer / shorter > MOST_ASPECT {
        return Err(CoreError::argument(format!(
            "the sides of {width} x {height} pixels are over {MOST_ASPECT} : 1; crop or pad the image"
        )));
    }
    let root = |pixels: u64| (pixels as f64).sqrt().round_ties_even();
    let (fewest, most) = (root(budget.shortest_edge), root(budget.longest_edge));
    let mut scale = if shorter < fewest { fewest / shorter } else { 1.0 };
    if longer * scale > most {
        scale = most / longer;
    }
    let unit = factor as f64;
    let sides =
        [width, height].map(|side| ((side / 2) as f64 * scale / unit).round_ties_even().max(1.0) * unit);
    let longest = sides[0].max(sides[1]);
    let beta = longest / most;
    let fit = |side: f64| if longest > most { (side / beta / unit).floor().max(1.0) * unit } else { side };
    Ok((fit(sides[0]) as usize, fit(sides[1]) as usize))
}
