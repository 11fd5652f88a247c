//! The way of one image: limits, digest, plan, tensors. And of many, side by side.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::hash::{ContentDigest, content_digest};
use crate::common::limits::{Limits, PILLOW_MAX_PIXELS};
use crate::common::memory::Buffer;
use crate::common::{decode, threads};
use crate::error::{CoreError, Result};
use crate::processor::{Input, Processor};
use crate::recipe::{Plan, Request, Source};
use crate::stage_times::{StageTimes, timed};
use crate::tensor::{Tensor, TensorSpec, Transport};

// Below this the hash takes less time than handing it to another thread.
const SMALLEST_HASH_BESIDE_BYTES: usize = 64 << 10;
// As many as float32 in RGB, twice (a temporal patch of 2). What copies, overlaps or pads more has to have fewer pixels.
const MOST_OUTPUT_BYTES_PER_PIXEL: u64 = 24;

/// A preprocessed image.
#[derive(Debug)]
pub struct Processed {
    /// The named tensors.
    pub tensors: Vec<Tensor>,
    /// What was known of the source.
    pub source: Source,
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

/// How images are to be preprocessed.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// By which family and parameters.
    pub processor: &'a Processor,
    /// Facts of the request they belong to.
    pub request: &'a Request,
    /// What they become.
    pub transport: Transport,
    /// What one may cost.
    pub limits: &'a Limits,
}

/// Refuses what a plan would make, before memory is taken for it.
///
/// # Errors
/// [`CoreError::LimitExceeded`].
pub fn admit(plan: &Plan, transport: Transport, limits: &Limits) -> Result<()> {
    for view in &plan.views {
        limits.check_pixels(view.width as u64, view.height as u64)?;
    }
    limits
        .check_patches(plan.grid.iter().fold(1, |patches: u64, &len| patches.saturating_mul(len as u64)))?;
    // Padding is not counted in pixels: large patches make much of it from few.
    let specs = plan.specs(transport);
    let value = specs.iter().map(TensorSpec::size_bytes).fold(0, usize::saturating_add) as u64;
    let limit = limits.max_pixels.max(PILLOW_MAX_PIXELS).saturating_mul(MOST_OUTPUT_BYTES_PER_PIXEL);
    if value > limit {
        return Err(CoreError::LimitExceeded { what: "size of the patches in bytes", value, limit });
    }
    Ok(())
}

impl Job<'_> {
    /// Preprocesses one encoded image; `digest` spares the hash where the caller has it.
    ///
    /// # Errors
    /// Whatever is wrong with the file, its size or the model's view of it.
    pub fn preprocess(&self, data: &[u8], digest: Option<ContentDigest>) -> Result<Processed> {
        self.limits.check_input_bytes(data.len())?;
        let mut hash_s = 0.0;
        let mut hash = || timed(&mut hash_s, || digest.unwrap_or_else(|| content_digest(data)));
        let make = || {
            let mut times = StageTimes::default();
            let picture = timed(&mut times.decode_s, || decode::Picture::open(data, self.limits))?;
            self.make(Input::Encoded(&picture), times)
        };
        let hashes_beside = digest.is_none() && data.len() >= SMALLEST_HASH_BESIDE_BYTES;
        // Elsewhere than in the pool, rayon would start another one.
        let (made, digest) = if hashes_beside && rayon::current_thread_index().is_some() {
            rayon::join(make, hash)
        } else {
            (make(), hash())
        };
        let made = made?;
        Ok(Processed { digest, times: StageTimes { hash_s, ..made.times }, ..made })
    }

    /// Preprocesses pixels that are already RGB (`height * width * 3` bytes, HWC).
    ///
    /// # Errors
    /// As [`Self::preprocess`].
    pub fn preprocess_rgb(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        digest: ContentDigest,
    ) -> Result<Processed> {
        let made = self.make(Input::Rgb { pixels, width, height }, StageTimes::default())?;
        Ok(Processed { digest, ..made })
    }

    fn make(&self, input: Input<'_>, mut times: StageTimes) -> Result<Processed> {
        let source = input.source();
        let plan = self.processor.plan(source, self.request)?;
        admit(&plan, self.transport, self.limits)?;
        let specs = plan.specs(self.transport).into_iter();
        let made = specs.map(|spec| Ok(Tensor { data: Buffer::take(spec.size_bytes())?, spec }));
        let mut tensors = made.collect::<Result<Vec<_>>>()?;
        let (of_pixels, extras) = tensors.split_at_mut(plan.pixel_tensors(self.transport).len());
        for (tensor, extra) in extras.iter_mut().zip(&plan.extras) {
            tensor.data.bytes_mut().copy_from_slice(extra.bytes());
        }
        let out = of_pixels.iter_mut().map(|tensor| tensor.data.bytes_mut()).collect();
        let decoder = self.processor.run(input, &plan, self.transport, &mut times, out)?;
        let ((width, height), Plan { grid, num_tokens, .. }) = (plan.size(), plan);
        let digest = [0; 32];
        Ok(Processed { tensors, source, width, height, grid, num_tokens, digest, decoder, times })
    }
}

/// Preprocesses encoded images side by side; one bad image leaves the others alone. `digests` is empty, or
/// holds the digest of each.
///
/// # Errors
/// One for each image; [`CoreError::InvalidArgument`] for all if the number of digests is wrong.
pub fn preprocess_batch(job: Job<'_>, datas: &[&[u8]], digests: &[ContentDigest]) -> Vec<Result<Processed>> {
    if !digests.is_empty() && digests.len() != datas.len() {
        let error = CoreError::argument(format!("{} digests for {} images", digests.len(), datas.len()));
        return datas.iter().map(|_| Err(error.clone())).collect();
    }
    side_by_side(datas, |at| job.preprocess(datas[at], digests.get(at).copied()))
}

// Calls that are at work in this process.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` for each index of `datas`, longest data first, and returns the results in order.
///
/// The long ones first, so that no thread is left alone with one at the end; one at a time from a shared
/// counter, so that the short ones go to whichever thread is free. An image stays on its thread while the others, those to
/// come or those of other calls, keep the other threads busy; a single one then stays on the thread of the call. A panic
/// becomes the result of its image.
pub fn side_by_side<T: Send + Sync>(
    datas: &[&[u8]],
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    side_by_side_among(&CALLS, datas, work)
}

fn side_by_side_among<T: Send + Sync>(
    calls: &AtomicUsize,
    datas: &[&[u8]],
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let threads = threads::pool().current_num_threads();
    let _call = Counted::new(calls);
    let others_keep_busy = || calls.load(Ordering::Relaxed) >= threads;
    let run = |at: usize, whole: bool| {
        let whole = whole || others_keep_busy();
        catch_unwind(AssertUnwindSafe(|| threads::keeping_whole(whole, || work(at))))
            .unwrap_or_else(|panic| Err(CoreError::from_panic(&*panic)))
    };
    if datas.len() == 1 && others_keep_busy() {
        return vec![run(0, true)];
    }
    let mut order: Vec<usize> = (0..datas.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(datas[at].len()));
    let results: Vec<OnceLock<Result<T>>> = datas.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let ahead_bytes = AtomicUsize::new(datas.iter().map(|data| data.len()).sum());
    let take_turns = || {
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let bytes = datas[at].len();
            let others_bytes = ahead_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
            // Each index is taken once, so its place is empty.
            let _ = results[at].set(run(at, others_bytes / threads >= bytes));
        }
    };
    threads::pool().install(|| {
        rayon::scope(|scope| {
            for _ in 1..threads.min(datas.len()) {
                scope.spawn(|_| take_turns());
            }
            take_turns();
        });
    });
    let missing = || Err(CoreError::Internal("an image was not processed".to_owned()));
    results.into_iter().map(|result| result.into_inner().unwrap_or_else(missing)).collect()
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::registry::default_registry;

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
        let calls = AtomicUsize::new(0);
        let spread = |lens: &[usize]| -> Vec<usize> {
            let datas: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
            let slices: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
            let results = side_by_side_among(&calls, &slices, |_| Ok(threads::spread()));
            results.into_iter().map(|spread| spread.unwrap_or(0)).collect()
        };
        let all = threads::pool().current_num_threads();
        assert_eq!(spread(&[9]), [all]);
        assert_eq!(spread(&[1, 1 << 20, 1]), [all; 3], "one that is larger than all others");
        let many = spread(&[5; 1000]);
        assert_eq!((many[0], many[999]), (1, all));
        assert_eq!(threads::keeping_whole(true, threads::spread), 1);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_image_stays_on_the_thread_of_its_call_while_other_calls_keep_the_others_busy() {
        let all = threads::pool().current_num_threads();
        let (data, here) = ([&[7_u8][..]], std::thread::current().id());
        let where_and_spread = |others: usize| {
            let work = |_| Ok((std::thread::current().id(), threads::spread()));
            let results = side_by_side_among(&AtomicUsize::new(others), &data, work);
            results.into_iter().next().and_then(Result::ok).expect("a result")
        };
        assert_eq!(where_and_spread(all), (here, 1));
        let (thread, spread) = where_and_spread(0);
        assert_eq!((thread == here, spread), (all == 1, all));
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
        let processor = default_registry().get("inkling").and_then(|family| {
            family.configure(r#"{"patch_size":4096,"rescale_frac":null,"rescale_cap":null}"#)
        });
        let source = Source::opaque(1, 170_000_000);
        let plan = processor.and_then(|processor| processor.plan(source, &Request::default()));
        assert!(matches!(
            admit(&plan.expect("a plan"), Transport::Bf16, &Limits::default()),
            Err(CoreError::LimitExceeded { what: "size of the patches in bytes", .. })
        ));
    }
}
