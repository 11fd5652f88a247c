//! The largest size of a picture's aspect within another.

use crate::error::{CoreError, Result};

/// `(width, height)` in pixels, as `ImageOps.contain` of Pillow has it: in doubles, rounded half to even.
///
/// # Errors
/// [`CoreError::InvalidArgument`] for a picture so thin that a side becomes nothing; Pillow refuses it too.
pub fn contain((width, height): (usize, usize), most: (usize, usize)) -> Result<(usize, usize)> {
    let (own, wanted) = (width as f64 / height as f64, most.0 as f64 / most.1 as f64);
    let size = if own > wanted {
        (most.0, (height as f64 / width as f64 * most.0 as f64).round_ties_even() as usize)
    } else if own < wanted {
        ((width as f64 / height as f64 * most.1 as f64).round_ties_even() as usize, most.1)
    } else {
        most
    };
    if size.0 > 0 && size.1 > 0 {
        return Ok(size);
    }
    Err(CoreError::argument(format!(
        "{width} x {height} pixels are too thin to be fitted into {} x {}; crop or pad the image",
        most.0, most.1
    )))
}
