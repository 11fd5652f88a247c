//! From pixels to patches: resizing and finishing, by bands where the family can.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Instant;

use crate::common::bands::Bands;
use crate::common::memory::Buffer;
use crate::common::resize::{self, Arithmetic, Filter, Size};
use crate::common::simd;
use crate::error::{CoreError, Result};
use crate::finish::finished_bytes;
use crate::processor::{ImageProcessor, StageTimes, timed};
use crate::tensor::Transport;

/// A resize of RGB pixels.
#[derive(Debug, Clone, Copy)]
pub struct Resizing {
    /// From which size to which; they may be the same.
    pub size: Size,
    /// The filter.
    pub filter: Filter,
    /// Whose arithmetic.
    pub arithmetic: Arithmetic,
}

/// The seconds that finishing bands took, on any thread.
#[derive(Debug)]
pub struct BandClock {
    nanoseconds: AtomicU64,
    // Those of the thread that made the clock.
    nanoseconds_here: AtomicU64,
    here: ThreadId,
}

impl Default for BandClock {
    fn default() -> Self {
        Self {
            nanoseconds: AtomicU64::new(0),
            nanoseconds_here: AtomicU64::new(0),
            here: thread::current().id(),
        }
    }
}

impl BandClock {
    /// Counts the time of `work`.
    pub fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if thread::current().id() == self.here {
            self.nanoseconds_here.fetch_add(nanoseconds, Ordering::Relaxed);
        }
        result
    }

    /// All that was counted.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9
    }

    /// What was counted in the thread that made the clock.
    pub fn seconds_here(&self) -> f64 {
        self.nanoseconds_here.load(Ordering::Relaxed) as f64 * 1e-9
    }
}

/// An image that a family finishes by bands.
pub struct ByBands<'a> {
    /// The family.
    pub processor: &'a dyn ImageProcessor,
    /// Width in pixels.
    pub width: usize,
    /// [`ImageProcessor::band_rows`].
    pub rows: usize,
    /// What the bands become.
    pub transport: Transport,
    /// Counts the time.
    pub clock: &'a BandClock,
}

impl ByBands<'_> {
    /// Hands the bands and `out`, all of the image's tensor, to what makes the pixels.
    ///
    /// # Errors
    /// Those of `make`, or a SIMD level that the CPU lacks.
    pub fn run<T>(&self, out: &mut [u8], make: impl FnOnce(Bands<'_>, &mut [u8]) -> Result<T>) -> Result<T> {
        let Self { processor, width, rows, transport, clock } = *self;
        let (all_bytes, level) = (out.len(), simd::level()?);
        let finish = |pixels: &[u8], out: &mut [u8]| {
            let rows = pixels.len() / (width * 3);
            // The level of the image, in whichever thread this runs.
            clock.count(|| {
                simd::with_level(level, || {
                    processor.finish_band(pixels, width, rows, transport, all_bytes, out)
                })
            })?
        };
        let out_bytes = finished_bytes(processor, width, rows, transport)?;
        make(Bands { rows, out_bytes, finish: &finish }, out)
    }
}

/// Resizes `rgb` and finishes it into `out`, which for `Uint8` becomes the resized pixels; adds the seconds of both to
/// `times`. What a family's [`ImageProcessor::process`] mostly is.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if `rgb` has another size; whatever the steps return.
pub fn resize_and_finish(
    processor: &dyn ImageProcessor,
    rgb: &[u8],
    resizing: &Resizing,
    transport: Transport,
    times: &mut StageTimes,
    out: &mut [u8],
) -> Result<()> {
    let Resizing { size, filter, arithmetic } = *resizing;
    let Size { in_width, in_height, out_width, out_height } = size;
    if rgb.is_empty() || Some(rgb.len()) != in_width.checked_mul(in_height).and_then(|len| len.checked_mul(3))
    {
        return Err(CoreError::argument(format!(
            "{} bytes are not {in_width} x {in_height} RGB pixels",
            rgb.len()
        )));
    }
    let StageTimes { resize_s, patchify_s, .. } = times;
    let mut resize =
        |out: &mut [u8]| timed(resize_s, || resize::resize_rgb_as(rgb, size, filter, arithmetic, out));
    if transport == Transport::Uint8 {
        return resize(out);
    }
    if (in_width, in_height) == (out_width, out_height) {
        return timed(patchify_s, || processor.finish(rgb, out_width, out_height, transport, out));
    }
    let Some(rows) = processor.band_rows() else {
        let mut pixels = Buffer::take(out_width * out_height * 3)?;
        resize(pixels.bytes_mut())?;
        return timed(patchify_s, || processor.finish(pixels.bytes(), out_width, out_height, transport, out));
    };
    let (clock, started) = (BandClock::default(), Instant::now());
    let image = ByBands { processor, width: out_width, rows, transport, clock: &clock };
    let worked_s = image
        .run(out, |bands, out| resize::resize_rgb_by_bands(rgb, size, filter, arithmetic, bands, out))?;
    // Threads work side by side, so each step has its share of the time that passed.
    let passed_s = started.elapsed().as_secs_f64();
    let share = (clock.seconds() / worked_s.max(f64::MIN_POSITIVE)).min(1.0);
    *patchify_s += passed_s * share;
    *resize_s += passed_s * (1.0 - share);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::simd::{Level, with_level};
    use crate::registry::default_registry;

    // Bands of a family must be what its own `finish` makes of the whole resized image.
    fn compare(processor: &dyn ImageProcessor, width: usize, height: usize, transport: Transport) {
        let pixels: Vec<u8> =
            (0..width * height * 3).map(|at: usize| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
        let process = |transport| {
            let mut times = StageTimes::default();
            let made = processor.process(&pixels, width, height, transport, &mut times);
            let [tensor]: [_; 1] = made.expect("valid").try_into().expect("one tensor");
            (tensor.data, times)
        };
        let Ok(plan) = processor.plan(width, height, transport) else { return };
        let (resized, _) = process(Transport::Uint8);
        for level in Level::available() {
            let (found, times) = with_level(level, || process(transport)).expect("level");
            let mut expected = vec![0; found.len()];
            let finished =
                processor.finish(resized.bytes(), plan.width, plan.height, transport, &mut expected);
            assert_eq!(finished, Ok(()));
            assert!(found.bytes() == expected, "{level} {width} x {height} {transport:?}");
            assert!(times.patchify_s > 0.0 && times.resize_s >= 0.0, "{times:?}");
        }
    }

    #[test]
    fn families_by_bands_make_what_they_make_of_the_whole() {
        let pools = [1, 3].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build());
        for (family, json) in [
            ("inkling", "{}"),
            ("inkling", r#"{"patch_size":7,"rescale_frac":0.6,"rescale_cap":null}"#),
            ("qwen_vl", r#"{"max_pixels":1000000}"#),
            ("qwen_vl", r#"{"backend":"pil","patch_size":16,"merge_size":1,"expand_temporal":true}"#),
        ] {
            let processor = default_registry().get(family).and_then(|family| family.configure(json));
            let processor = processor.expect("valid parameters");
            for (width, height) in [(1, 1), (3, 60), (60, 3), (90, 61), (113, 120), (700, 501)] {
                for transport in [Transport::Bf16, Transport::Float32] {
                    for pool in pools.iter().flatten() {
                        pool.install(|| compare(&*processor, width, height, transport));
                    }
                }
            }
        }
    }
}
