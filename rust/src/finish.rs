//! Late normalising of many images into one array: what `gather` does with the `uint8` transport.

use rayon::prelude::*;

use crate::common::threads;
use crate::error::{CoreError, Result};
use crate::processor::Processor;
use crate::recipe::Plan;
use crate::tensor::{TensorSpec, Transport};

/// An image that was resized already.
#[derive(Debug, Clone, Copy)]
pub struct Resized<'a> {
    /// The kept pixels of its views, one after the other: the `uint8` transport.
    pub pixels: &'a [u8],
    /// What it becomes.
    pub plan: &'a Plan,
}

/// [`Processor::finish`] of one image, whose tensors lie one after the other in `out`.
///
/// # Errors
/// As [`Processor::finish`].
pub fn finish(processor: &Processor, image: Resized<'_>, transport: Transport, out: &mut [u8]) -> Result<()> {
    let (mut rest, mut places) = (out, Vec::new());
    for spec in image.plan.normalised(transport)? {
        let (place, behind) = rest.split_at_mut_checked(spec.size_bytes()).ok_or_else(|| {
            CoreError::argument(format!("the output does not hold {} of {:?}", spec.name, spec.shape))
        })?;
        places.push(place);
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(CoreError::argument(format!("the output is {} bytes too long", rest.len())));
    }
    processor.finish(image.plan, image.pixels, transport, places)
}

/// [`finish`] of each image at its offset in `out`, side by side on the pool.
///
/// Without offsets the images lie one after the other and fill `out`. Bytes between images keep their values.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if two images overlap, one does not fit, or `finish` refuses it; the first
/// two leave `out` untouched.
pub fn finish_batch(
    processor: &Processor,
    images: &[Resized<'_>],
    transport: Transport,
    out: &mut [u8],
    offsets_bytes: Option<&[usize]>,
) -> Result<()> {
    let sizes = images.iter().map(|image| finished_bytes(image.plan, transport));
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
        places.into_par_iter().try_for_each(|(image, place)| finish(processor, image, transport, place))
    })
}

/// Bytes of what an image becomes.
///
/// # Errors
/// As [`Plan::normalised`].
pub fn finished_bytes(plan: &Plan, transport: Transport) -> Result<usize> {
    let tensors = plan.normalised(transport)?;
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
