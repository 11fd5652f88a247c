//! SigLIP 2's size: the largest scale, found by bisection, whose patches are within their number.

/// `(width, height)` in pixels, multiples of `patch_px`, with at most `most_patches` patches, if one is not too many.
///
/// As `get_image_size_for_max_num_patches` of transformers, in doubles, with its precision of 1e-5.
pub fn most_patches((width, height): (usize, usize), patch_px: usize, most_patches: usize) -> (usize, usize) {
    const PRECISION: f64 = 1e-5;
    let patches = |side: usize, scale: f64| (side as f64 * scale / patch_px as f64).ceil().max(1.0);
    let (mut low, mut high) = (PRECISION / 10.0, 100.0);
    while high - low >= PRECISION {
        let scale = (low + high) / 2.0;
        if patches(height, scale) * patches(width, scale) <= most_patches as f64 {
            low = scale;
        } else {
            high = scale;
        }
    }
    (patches(width, low) as usize * patch_px, patches(height, low) as usize * patch_px)
}
