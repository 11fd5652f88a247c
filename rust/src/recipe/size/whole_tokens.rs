//! Relatives of `smart_resize` that give every side at least one token before they look at the budget.

use super::smart::{MAX_ASPECT_RATIO, smart_resize};
use crate::error::{CoreError, Result};
use crate::recipe::checkpoint::PixelBudget;

/// A side in pixels, rounded half to even to whole multiples of `unit`, but at least one.
pub fn rounded(side: f64, unit: usize) -> usize {
    ((side / unit as f64).round_ties_even() as usize).max(1) * unit
}

/// A side in pixels, cut to whole multiples of `unit`, but at least one.
pub fn floored(side: f64, unit: usize) -> usize {
    ((side / unit as f64).floor() as usize).max(1) * unit
}

fn ceiled(side: f64, unit: usize) -> usize {
    (side / unit as f64).ceil() as usize * unit
}

/// Refuses an empty picture and sides over 200 : 1.
///
/// # Errors
/// [`CoreError::InvalidArgument`].
pub fn check_aspect((width, height): (usize, usize)) -> Result<()> {
    let aspect = width.max(height) as f64 / width.min(height) as f64;
    if aspect <= MAX_ASPECT_RATIO {
        return Ok(());
    }
    Err(CoreError::argument(format!(
        "the sides of {width} x {height} pixels are as 1 to {aspect:.1}, over the limit of {MAX_ASPECT_RATIO}; crop \
         or pad the image"
    )))
}

/// `(width, height)` in pixels, multiples of `factor`: the rule of Cosmos3 Edge, LFM2-VL and Dots3, in doubles.
pub fn whole_tokens((width, height): (usize, usize), factor: usize, budget: PixelBudget) -> (usize, usize) {
    let sides = [width as f64, height as f64];
    let [wide, high] = sides.map(|side| rounded(side, factor));
    let pixels = (wide * high) as u64;
    let area = sides[0] * sides[1];
    let [wide, high] = if pixels > budget.longest_edge {
        let shrink = (area / budget.longest_edge as f64).sqrt();
        sides.map(|side| floored(side / shrink, factor))
    } else if pixels < budget.shortest_edge {
        let grow = (budget.shortest_edge as f64 / area).sqrt();
        sides.map(|side| ceiled(side * grow, factor))
    } else {
        [wide, high]
    };
    (wide, high)
}

/// `(width, height)` of PaddleOCR-VL: as [`smart_resize`], but a side below `factor` first grows to it.
///
/// As `smart_resize` of transformers' `paddleocr_vl`, in doubles.
///
/// # Errors
/// As [`smart_resize`].
pub fn paddleocr_vl(
    (mut width, mut height): (usize, usize),
    factor: usize,
    budget: PixelBudget,
) -> Result<(usize, usize)> {
    let grown =
        |other: usize, side: usize| ((other * factor) as f64 / side as f64).round_ties_even() as usize;
    if height > 0 && height < factor {
        (width, height) = (grown(width, height), factor);
    }
    if width > 0 && width < factor {
        (width, height) = (factor, grown(height, width));
    }
    let (height, width) = smart_resize(height, width, factor, budget.shortest_edge, budget.longest_edge)?;
    Ok((width, height))
}

/// `(width, height)` of ERNIE 4.5 VL in SGLang: sides over 200 : 1 are cut to that, not refused.
///
/// # Errors
/// [`CoreError::InvalidArgument`] where no size is within the budget.
pub fn ernie(
    (mut width, mut height): (usize, usize),
    factor: usize,
    budget: PixelBudget,
) -> Result<(usize, usize)> {
    if check_aspect((width, height)).is_err() && width.min(height) > 0 {
        let short = rounded(width.min(height) as f64, factor);
        let long = (short as f64 * MAX_ASPECT_RATIO / factor as f64).floor() as usize * factor;
        (width, height) = if height > width { (short, long) } else { (long, short) };
    }
    let sides = [width as f64, height as f64];
    let area = sides[0] * sides[1];
    let [mut wide, mut high] = sides.map(|side| rounded(side, factor));
    if (wide * high) as u64 > budget.longest_edge {
        let shrink = (area / budget.longest_edge as f64).sqrt();
        [wide, high] = sides.map(|side| (side / shrink / factor as f64).floor() as usize * factor);
    } else if ((wide * high) as u64) < budget.shortest_edge {
        let grow = (budget.shortest_edge as f64 / area).sqrt();
        [wide, high] = sides.map(|side| ceiled(side * grow, factor));
    }
    if (budget.shortest_edge..=budget.longest_edge).contains(&((wide * high) as u64)) {
        return Ok((wide, high));
    }
    Err(CoreError::argument(format!(
        "{width} x {height} pixels have no size within the budget; crop the image"
    )))
}
