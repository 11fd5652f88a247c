//! The size that a picture is resized to: whole merged patches, close to its own aspect, within a pixel budget.

use crate::error::{CoreError, Result};

/// Largest ratio of the sides that the models take.
pub const MAX_ASPECT_RATIO: f64 = 200.0;

// A budget that asks for more than this could not be held; it is refused before sizes overflow.
const MOST_PIXELS: f64 = (1_u64 << 40) as f64;

/// `(height, width)` in pixels, multiples of `factor`, as `smart_resize` of transformers has them.
///
/// Sides are rounded half to even. Over `max_pixels` both shrink, but never below `factor` (the clamp that
/// older copies of the rule lack: it keeps thin pictures); below `min_pixels` both grow.
///
/// # Errors
/// [`CoreError::InvalidArgument`] for an empty picture, sides over 200 : 1, or a budget beyond memory.
pub fn smart_resize(
    height: usize,
    width: usize,
    factor: usize,
    min_pixels: u64,
    max_pixels: u64,
) -> Result<(usize, usize)> {
    smart_resize_frames(height, width, factor, 1, min_pixels, max_pixels)
}

/// As [`smart_resize`], with pixels that count once for each of `frames`.
///
/// # Errors
/// As [`smart_resize`].
pub fn smart_resize_frames(
    height: usize,
    width: usize,
    factor: usize,
    frames: usize,
    min_pixels: u64,
    max_pixels: u64,
) -> Result<(usize, usize)> {
    if height == 0 || width == 0 {
        return Err(CoreError::argument("the image is empty"));
    }
    if factor == 0 || max_pixels == 0 {
        return Err(CoreError::argument("smart_resize needs a factor and max_pixels above 0"));
    }
    // No minimum at all would round a side of less than half a factor to nothing.
    let min_pixels = min_pixels.max(1);
    let (high, wide, unit) = (height as f64, width as f64, factor as f64);
    let aspect = high.max(wide) / high.min(wide);
    if aspect > MAX_ASPECT_RATIO {
        return Err(CoreError::argument(format!(
            "the sides of {width} x {height} pixels are as 1 to {aspect:.1}, over the limit of \
             {MAX_ASPECT_RATIO}; crop or pad the image"
        )));
    }
    let mut rows = (high / unit).round_ties_even();
    let mut columns = (wide / unit).round_ties_even();
    let frames = frames as f64;
    let rounded_pixels = frames * (rows * unit) * (columns * unit);
    if rounded_pixels > max_pixels as f64 {
        let shrink = (frames * high * wide / max_pixels as f64).sqrt();
        rows = (high / shrink / unit).floor().max(1.0);
        columns = (wide / shrink / unit).floor().max(1.0);
    } else if rounded_pixels < min_pixels as f64 {
        let grow = (min_pixels as f64 / (frames * high * wide)).sqrt();
        rows = (high * grow / unit).ceil();
        columns = (wide * grow / unit).ceil();
    }
    let (out_height, out_width) = (rows * unit, columns * unit);
    if out_height * out_width > MOST_PIXELS {
        return Err(CoreError::argument(format!(
            "min_pixels of {min_pixels} would enlarge {width} x {height} pixels beyond memory; lower it"
        )));
    }
    Ok((out_height as usize, out_width as usize))
}

#[cfg(test)]
mod tests {
    use super::smart_resize;

    // (height, width, factor, min, max) -> (height, width), from transformers 5.24.0.
    const PUBLISHED: [([u64; 5], (usize, usize)); 11] = [
        ([512, 512, 28, 3_136, 12_845_056], (504, 504)),
        ([1080, 1920, 28, 3_136, 12_845_056], (1092, 1932)),
        ([10, 500, 28, 3_136, 12_845_056], (28, 420)),
        ([12, 100, 28, 3_136, 12_845_056], (28, 168)),
        ([639, 31, 28, 3_136, 15_680], (560, 28)),
        ([1, 1, 28, 3_136, 12_845_056], (56, 56)),
        ([1, 200, 28, 3_136, 12_845_056], (28, 812)),
        ([27, 332, 28, 3_136, 12_845_056], (28, 336)),
        ([30, 328, 32, 65_536, 16_777_216], (96, 864)),
        ([26, 28, 28, 3_136, 12_845_056], (56, 84)),
        ([42, 70, 28, 1, 12_845_056], (56, 56)),
    ];

    #[test]
    fn follows_the_rule_of_today() {
        for ([height, width, factor, min, max], expected) in PUBLISHED {
            let size = smart_resize(height as usize, width as usize, factor as usize, min, max);
            assert_eq!(size, Ok(expected), "{height} x {width}");
        }
    }

    #[test]
    fn refuses_what_the_rule_cannot_take() {
        assert!(smart_resize(1, 200, 28, 3136, 12_845_056).is_ok());
        assert_eq!(smart_resize(9, 9, 28, 0, 12_845_056), Ok((28, 28)), "no minimum, and still a token");
        for (height, width, min) in [(1, 201, 3136), (0, 5, 3136), (5, 0, 3136), (9, 9, 1 << 60)] {
            assert!(smart_resize(height, width, 28, min, 12_845_056).is_err(), "{height} x {width}, {min}");
        }
    }
}
