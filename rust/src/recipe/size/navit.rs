//! Kimi's size: never enlarged, within a number of patches and a longest side.

/// `(width, height)` in pixels of a picture of `width` by `height` with at most some `most_patches` patches of
/// `patch_px`, and none of its sides longer than `most_a_side` of them.
///
/// As `navit_resize_image` of the checkpoint: doubles, sides cut to whole pixels.
pub fn navit(
    (width, height): (usize, usize),
    patch_px: usize,
    most_patches: usize,
    most_a_side: usize,
) -> (usize, usize) {
    let patches = |side: usize| ((side / patch_px) as f64).max(1.0);
    let most_px = patch_px.saturating_mul(most_a_side);
    let by_area = (most_patches as f64 / (patches(width) * patches(height))).sqrt();
    let scale = by_area.min(most_px as f64 / width as f64).min(most_px as f64 / height as f64).min(1.0);
    let resized = |side: usize| ((side as f64 * scale) as usize).max(1).min(most_px);
    (resized(width), resized(height))
}

/// `side` up to the next multiple of `unit`.
pub fn up_to_multiple(side: usize, unit: usize) -> usize {
    side.div_ceil(unit).saturating_mul(unit)
}
