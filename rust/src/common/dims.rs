//! Output size of a rescale by a factor of the long edge.

/// `(width, height)` after rescaling: the long edge times `rescale_frac`, growth capped at `rescale_cap`.
///
/// The cap limits growth and never shrinks an image that is already larger. Follows SGLang's Inkling
/// processor: each side is `floor(side * ratio + 0.5)`, at least 1.
pub fn scaled_dims(
    width: usize,
    height: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> (usize, usize) {
    let long_edge = width.max(height) as f64;
    let Some(frac) = rescale_frac else { return (width, height) };
    if long_edge == 0.0 {
        return (width, height);
    }
    let mut target = long_edge * frac;
    if let Some(cap) = rescale_cap {
        target = target.min((cap as f64).max(long_edge));
    }
    let ratio = target / long_edge;
    if ratio == 1.0 {
        return (width, height);
    }
    // Through i64, the published type: sides beyond it stop at its maximum.
    let scale = |side: usize| ((side as f64 * ratio + 0.5).floor() as i64).max(1) as usize;
    (scale(width), scale(height))
}

#[cfg(test)]
mod tests {
    use super::scaled_dims;

    #[test]
    fn follows_the_published_rule() {
        assert_eq!(scaled_dims(512, 512, Some(2.0), Some(2048)), (1024, 1024));
        assert_eq!(scaled_dims(1920, 1080, Some(2.0), Some(2048)), (2048, 1152));
        assert_eq!(scaled_dims(3840, 2160, Some(2.0), Some(2048)), (3840, 2160));
        assert_eq!(scaled_dims(100, 1, Some(0.1), None), (10, 1));
        assert_eq!(scaled_dims(0, 0, Some(2.0), None), (0, 0));
        assert_eq!(scaled_dims(7, 9, None, Some(3)), (7, 9));
    }
}
