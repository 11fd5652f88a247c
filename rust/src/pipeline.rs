//! The way of one image: limits, digest, decode, process. And of many, side by side.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::common::hash::{ContentDigest, content_digest};
use crate::common::limits::{Limits, PILLOW_MAX_PIXELS};
use crate::common::memory::Buffer;
use crate::common::{decode, threads};
use crate::error::{CoreError, Result};
use crate::processor::{ImageProcessor, Plan, StageTimes, timed};
use crate::stages::{BandClock, ByBands};
use crate::tensor::{Tensor, TensorSpec, Transport};

// Below this the hash takes less time than handing it to another thread.
const SMALLEST_HASH_BESIDE_BYTES: usize = 64 << 10;
// float32 in RGB, twice (a temporal patch of 2), is the most that a pixel becomes.
const MOST_OUTPUT_BYTES_PER_PIXEL: u64 = 24;

/// A preprocessed image.
#[derive(Debug)]
pub struct Processed {
    /// The named tensors.
    pub tensors: Vec<Tensor>,
    /// Width after resizing, in pixels.
    pub width: usize,
    /// Height after resizing, in pixels.
    pub height: usize,
    /// Patch grid: temporal, rows, columns.
    pub grid: [usize; 3],
    /// Placeholder tokens.
    pub num_tokens: usize,
    /// SHA-256 of the input.
    pub digest: ContentDigest,
    /// Which decoder made the pixels, such as `"jpeg"`.
    pub decoder: &'static str,
    /// Where the time went.
    pub times: StageTimes,
}

/// Refuses what a plan would make, before memory is taken for it.
///
/// # Errors
/// [`CoreError::LimitExceeded`].
pub fn admit(plan: &Plan, limits: &Limits) -> Result<()> {
    limits.check_pixels(plan.width as u64, plan.height as u64)?;
    limits
        .check_patches(plan.grid.iter().fold(1, |patches: u64, &len| patches.saturating_mul(len as u64)))?;
    // Padding is not counted in pixels: large patches make much of it from few.
    let value = plan.tensors.iter().map(TensorSpec::size_bytes).fold(0, usize::saturating_add) as u64;
    let limit = limits.max_pixels.max(PILLOW_MAX_PIXELS).saturating_mul(MOST_OUTPUT_BYTES_PER_PIXEL);
    if value > limit {
        return Err(CoreError::LimitExceeded { what: "size of the patches in bytes", value, limit });
    }
    Ok(())
}

/// Preprocesses one encoded image; `digest` spares the hash where the caller has it.
///
/// # Errors
/// Whatever is wrong with the file, its size or the model's view of it.
pub fn preprocess(
    processor: &dyn ImageProcessor,
    data: &[u8],
    digest: Option<ContentDigest>,
    transport: Transport,
    limits: &Limits,
) -> Result<Processed> {
    limits.check_input_bytes(data.len())?;
    let mut hash_s = 0.0;
    let mut hash = || timed(&mut hash_s, || digest.unwrap_or_else(|| content_digest(data)));
    let make = || make(processor, data, transport, limits);
    let (made, digest) = if digest.is_none() && data.len() >= SMALLEST_HASH_BESIDE_BYTES {
        rayon::join(make, hash)
    } else {
        (make(), hash())
    };
    let (plan, tensors, decoder, times) = made?;
    Ok(processed(plan, tensors, digest, decoder, StageTimes { hash_s, ..times }))
}

type Made = (Plan, Vec<Tensor>, &'static str, StageTimes);

fn make(processor: &dyn ImageProcessor, data: &[u8], transport: Transport, limits: &Limits) -> Result<Made> {
    let mut times = StageTimes::default();
    let picture = timed(&mut times.decode_s, || decode::Picture::open(data, limits))?;
    let decode::Header { width, height, .. } = picture.header;
    let plan = processor.plan(width, height, transport)?;
    admit(&plan, limits)?;
    if let (Some(rows), [spec]) = (rows_of_bands(processor, &picture, &plan, transport), &plan.tensors[..]) {
        let mut tensor = Tensor { spec: spec.clone(), data: Buffer::take(spec.size_bytes())? };
        let out = tensor.data.bytes_mut();
        let decoder = decode_by_bands(processor, &picture, rows, transport, &mut times, out)?;
        return Ok((plan, vec![tensor], decoder, times));
    }
    let image = timed(&mut times.decode_s, || picture.decode())?;
    let tensors = processor.process(image.pixels.bytes(), width, height, transport, &mut times)?;
    Ok((plan, tensors, image.decoder, times))
}

/// Rows of a band, if `picture` can become its only tensor while it is decoded: by [`decode_by_bands`].
pub fn rows_of_bands(
    processor: &dyn ImageProcessor,
    picture: &decode::Picture<'_>,
    plan: &Plan,
    transport: Transport,
) -> Option<usize> {
    let keeps_size = (plan.width, plan.height) == (picture.header.width, picture.header.height);
    let one_tensor = plan.tensors.len() == 1 && transport != Transport::Uint8;
    processor.band_rows().filter(|_| keeps_size && one_tensor && picture.comes_by_rows())
}

/// Decodes `picture` into `out`, its tensor, by bands of `rows`. Returns the name of the decoder.
///
/// # Errors
/// As [`preprocess`].
pub fn decode_by_bands(
    processor: &dyn ImageProcessor,
    picture: &decode::Picture<'_>,
    rows: usize,
    transport: Transport,
    times: &mut StageTimes,
    out: &mut [u8],
) -> Result<&'static str> {
    let (clock, started) = (BandClock::default(), Instant::now());
    let image = ByBands { processor, width: picture.header.width, rows, transport, clock: &clock };
    let decoder = image.run(out, |bands, out| picture.decode_by_bands(&bands, out))?;
    times.patchify_s += clock.seconds();
    // Bands that another thread finished took none of this one's time.
    times.decode_s += (started.elapsed().as_secs_f64() - clock.seconds_here()).max(0.0);
    Ok(decoder)
}

/// Preprocesses pixels that are already RGB (`height * width * 3` bytes, HWC).
///
/// # Errors
/// As [`preprocess`].
pub fn preprocess_rgb(
    processor: &dyn ImageProcessor,
    rgb: &[u8],
    width: usize,
    height: usize,
    digest: ContentDigest,
    transport: Transport,
    limits: &Limits,
) -> Result<Processed> {
    let plan = processor.plan(width, height, transport)?;
    admit(&plan, limits)?;
    let mut times = StageTimes::default();
    let tensors = processor.process(rgb, width, height, transport, &mut times)?;
    Ok(processed(plan, tensors, digest, "rgb", times))
}

fn processed(
    plan: Plan,
    tensors: Vec<Tensor>,
    digest: ContentDigest,
    decoder: &'static str,
    times: StageTimes,
) -> Processed {
    let Plan { width, height, grid, num_tokens, .. } = plan;
    Processed { tensors, width, height, grid, num_tokens, digest, decoder, times }
}

/// Preprocesses encoded images side by side; one bad image leaves the others alone. `digests` is empty, or
/// holds the digest of each.
///
/// # Errors
/// One for each image; [`CoreError::InvalidArgument`] for all if the number of digests is wrong.
pub fn preprocess_batch(
    processor: &dyn ImageProcessor,
    datas: &[&[u8]],
    digests: &[ContentDigest],
    transport: Transport,
    limits: &Limits,
) -> Vec<Result<Processed>> {
    if !digests.is_empty() && digests.len() != datas.len() {
        let error = CoreError::argument(format!("{} digests for {} images", digests.len(), datas.len()));
        return datas.iter().map(|_| Err(error.clone())).collect();
    }
    side_by_side(datas, |at| preprocess(processor, datas[at], digests.get(at).copied(), transport, limits))
}

/// Runs `work` for each index of `datas` on the pool, longest data first, and returns the results in order.
///
/// The long ones first, so that no thread is left alone with one at the end; one at a time from a shared
/// counter, so that the short ones go to whichever thread is free. While those to come keep the other threads busy for as
/// long as an image may take, it stays on its thread. A panic becomes the result of its image.
pub fn side_by_side<T: Send + Sync>(
    datas: &[&[u8]],
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let mut order: Vec<usize> = (0..datas.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(datas[at].len()));
    let results: Vec<OnceLock<Result<T>>> = datas.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let ahead_bytes = AtomicUsize::new(datas.iter().map(|data| data.len()).sum());
    let take_turns = || {
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let bytes = datas[at].len();
            let others_bytes = ahead_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
            let whole = others_bytes / rayon::current_num_threads() >= bytes;
            let result = catch_unwind(AssertUnwindSafe(|| threads::keeping_whole(whole, || work(at))));
            // Each index is taken once, so its place is empty.
            let _ = results[at].set(result.unwrap_or_else(|panic| Err(CoreError::from_panic(&*panic))));
        }
    };
    threads::pool().install(|| {
        rayon::scope(|scope| {
            for _ in 1..rayon::current_num_threads().min(datas.len()) {
                scope.spawn(|_| take_turns());
            }
            take_turns();
        });
    });
    let missing = || Err(CoreError::Internal("an image was not processed".to_owned()));
    results.into_iter().map(|result| result.into_inner().unwrap_or_else(missing)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_a_panic_stays_with_its_image() {
        let datas: Vec<Vec<u8>> = (0..50).map(|len| vec![0; len * 7 % 13]).collect();
        let slices: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
        let results = side_by_side(&slices, |at| {
            assert!(at != 7, "seven is broken");
            Ok(at)
        });
        for (at, result) in results.into_iter().enumerate() {
            match result {
                Ok(value) => assert_eq!(value, at),
                Err(error) => {
                    assert_eq!((at, error), (7, CoreError::Internal("seven is broken".to_owned())));
                }
            }
        }
    }

    #[test]
    fn an_image_is_spread_once_the_others_are_not_enough_for_the_other_threads() {
        let spread = |lens: &[usize]| -> Vec<usize> {
            let datas: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
            let slices: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
            side_by_side(&slices, |_| Ok(threads::spread())).into_iter().map(|n| n.unwrap_or(0)).collect()
        };
        let all = threads::pool().current_num_threads();
        assert_eq!(spread(&[9]), [all]);
        assert_eq!(spread(&[1, 1 << 20, 1]), [all; 3], "one that is larger than all others");
        let many = spread(&[5; 1000]);
        assert_eq!((many[0], many[999]), (1, all));
        assert_eq!(threads::keeping_whole(true, threads::spread), 1);
    }

    #[test]
    fn the_longest_starts_first_and_the_others_pass_it_by() {
        if threads::pool().current_num_threads() < 2 {
            return;
        }
        let datas: Vec<Vec<u8>> = (0..40).map(|at| vec![0; if at == 23 { 99 } else { at }]).collect();
        let slices: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
        let others = AtomicUsize::new(0);
        let first = OnceLock::new();
        let results = side_by_side(&slices, |at| {
            let _ = first.set(at);
            if at != 23 {
                others.fetch_add(1, Ordering::SeqCst);
                return Ok(true);
            }
            let started = Instant::now();
            while others.load(Ordering::SeqCst) < 39 && started.elapsed().as_secs() < 60 {
                std::thread::yield_now();
            }
            Ok(others.load(Ordering::SeqCst) == 39)
        });
        assert_eq!(first.get(), Some(&23));
        assert!(results.into_iter().all(|result| result == Ok(true)));
    }

    #[test]
    fn a_plan_that_is_mostly_padding_is_refused_by_its_bytes() {
        let tensors = vec![TensorSpec {
            name: "patches",
            dtype: crate::tensor::DType::Bf16,
            shape: vec![43_000, 4096, 4096, 3],
        }];
        let plan = Plan { width: 1, height: 170_000_000, grid: [1, 43_000, 1], num_tokens: 43_000, tensors };
        assert!(matches!(
            admit(&plan, &Limits::default()),
            Err(CoreError::LimitExceeded { what: "size of the patches in bytes", .. })
        ));
    }
}
