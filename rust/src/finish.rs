//! Late normalising of many images into one array: what `gather` does with the `uint8` transport.

use rayon::prelude::*;

use crate::common::threads;
use crate::error::{CoreError, Result};
use crate::processor::ImageProcessor;
use crate::tensor::{TensorSpec, Transport};

/// Resized RGB pixels of one image.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// `height * width * 3` bytes, HWC.
    pub values: &'a [u8],
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
}

/// [`ImageProcessor::finish`] of each image at its offset in `out`, side by side on the pool.
///
/// Without offsets the images lie one after the other and fill `out`. Bytes between images keep their values.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if two images overlap, one does not fit, or `finish` refuses it; the first
/// two leave `out` untouched.
pub fn finish_batch(
    processor: &dyn ImageProcessor,
    images: &[Pixels<'_>],
    transport: Transport,
    out: &mut [u8],
    offsets_bytes: Option<&[usize]>,
) -> Result<()> {
    // The pixels are resized already, so their own size is the planned one; what they become is the family's.
    let sizes = images.iter().map(|image| finished_bytes(processor, image.width, image.height, transport));
    let sizes = sizes.collect::<Result<Vec<_>>>()?;
    let offsets = match offsets_bytes {
        Some(offsets) if offsets.len() == images.len() => offsets.to_vec(),
        Some(offsets) => {
            return Err(CoreError::argument(format!(
                "{} offsets for {} images",
                offsets.len(),
                images.len()
            )));
        }
        None => one_after_the_other(&sizes, out.len())?,
    };
    let mut order: Vec<usize> = (0..images.len()).collect();
    order.sort_by_key(|&at| (offsets[at], sizes[at]));
    let mut places = Vec::with_capacity(images.len());
    let (mut rest, mut passed) = (out, 0);
    for at in order {
        let (offset, size) = (offsets[at], sizes[at]);
        let gap = offset.checked_sub(passed).ok_or_else(|| {
            CoreError::argument(format!("image {at} at byte {offset} overlaps the image before it"))
        })?;
        if gap > rest.len() || size > rest.len() - gap {
            return Err(CoreError::argument(format!(
                "image {at} needs {size} bytes at byte {offset}, past the end of the output"
            )));
        }
        let (place, after) = rest.split_at_mut(gap + size);
        places.push((images[at], &mut place[gap..]));
        (rest, passed) = (after, offset + size);
    }
    threads::pool().install(|| {
        places.into_par_iter().try_for_each(|(image, place)| {
            processor.finish(image.values, image.width, image.height, transport, place)
        })
    })
}

/// Bytes of what so many rows of pixels become: those of an image, or of a band.
///
/// # Errors
/// As [`ImageProcessor::finished`].
pub fn finished_bytes(
    processor: &dyn ImageProcessor,
    width: usize,
    rows: usize,
    transport: Transport,
) -> Result<usize> {
    let tensors = processor.finished(width, rows, transport)?;
    Ok(tensors.iter().map(TensorSpec::size_bytes).fold(0, usize::saturating_add))
}

fn one_after_the_other(sizes: &[usize], len: usize) -> Result<Vec<usize>> {
    let mut end = 0_usize;
    let offsets = sizes
        .iter()
        .map(|&size| {
            let offset = end;
            end = end.saturating_add(size);
            offset
        })
        .collect();
    if end != len {
        return Err(CoreError::argument(format!("the images become {end} bytes, but the output has {len}")));
    }
    Ok(offsets)
}
