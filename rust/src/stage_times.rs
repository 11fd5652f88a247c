//! Where the time of an image goes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// Seconds spent in each stage. Where stages take turns by bands, each has the sum of its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTimes {
    /// SHA-256 of the encoded bytes; beside the decoding if a thread is idle.
    pub hash_s: f64,
    /// Decoding to RGB.
    pub decode_s: f64,
    /// Resizing.
    pub resize_s: f64,
    /// Normalising and cutting into patches; beside the decoding if a thread is idle.
    pub patchify_s: f64,
}

/// Seconds that `work` takes, added to `total_s`.
pub fn timed<T>(total_s: &mut f64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *total_s += started.elapsed().as_secs_f64();
    result
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
