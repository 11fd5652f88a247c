//! The shortest edge to a length, the other in proportion.

/// `(width, height)` in pixels whose shorter side is `edge`; the other is cut to whole pixels.
///
/// As `get_resize_output_image_size` of transformers, in doubles.
pub fn shortest_edge((width, height): (usize, usize), edge: usize) -> (usize, usize) {
    let (short, long) = (width.min(height).max(1), width.max(height));
    let other = ((edge * long) as f64 / short as f64) as usize;
    if width <= height { (edge, other) } else { (other, edge) }
}
