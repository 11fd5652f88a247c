//! Pooled byte buffers: large, page-aligned, reused, bounded.
//!
//! A page fault costs more than the arithmetic on the page, so buffers go back to a process-wide pool when
//! dropped, and large ones ask for huge pages. Their content is whatever was there before: whoever takes a
//! buffer writes all of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::mapping::Mapping;
use crate::error::{CoreError, Result};

const SMALLEST_CLASS_BYTES: usize = 64 << 10;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const SMALLEST_PAGE_BYTES: usize = 4096;
/// Most bytes that ever wait for reuse. The least recently used go back to the system first.
pub const MOST_IDLE_BYTES: usize = 1 << 30;
// Bytes that may wait in any process. More may where more was in use at once: the next batch will want it again.
const USUAL_IDLE_BYTES: usize = MOST_IDLE_BYTES / 2;
// A larger buffer goes back to the system at once: keeping it would drive all others out. A picture of
// 3840 x 2160 in single precision with two temporal copies takes 199 MB and is to be kept.
const LARGEST_POOLED_BYTES: usize = USUAL_IDLE_BYTES / 2;
// The lock is held for some hundred instructions, so a few spins outlast every holder that is running.
const MOST_SPINS: usize = 1000;

struct Idle {
    /// Memory of buffers that are gone, least recently used first.
    used: Vec<Mapping>,
    /// Memory that no buffer had yet, touched ahead, to be cut to size.
    ahead: Mapping,
}

static IDLE: Mutex<Idle> = Mutex::new(Idle { used: Vec::new(), ahead: Mapping::EMPTY });
static IDLE_BYTES: AtomicUsize = AtomicUsize::new(0);
// Bytes of all buffers, and the most that they were so far.
static IN_USE_BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_IN_USE_BYTES: AtomicUsize = AtomicUsize::new(0);

// Never waits without end: a child forked while another thread held the lock finds it locked for ever, and
// then works without the pool.
fn lock_idle() -> Option<MutexGuard<'static, Idle>> {
    for _ in 0..MOST_SPINS {
        match IDLE.try_lock() {
            Ok(idle) => return Some(idle),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            Err(TryLockError::Poisoned(_)) => return None,
        }
    }
    None
}

/// A byte buffer from the pool, page-aligned unless said.
#[derive(Debug)]
pub struct Buffer {
    memory: Option<Mapping>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Takes a buffer of `len` bytes with unspecified content.
    ///
    /// # Errors
    /// [`CoreError::Internal`] if the system has no memory left.
    pub fn take(len: usize) -> Result<Self> {
        let class = size_class(len);
        let memory = match take_idle(class) {
            Some(memory) => memory,
            None => map(class)?,
        };
        let in_use = IN_USE_BYTES.fetch_add(class, Ordering::Relaxed) + class;
        MOST_IN_USE_BYTES.fetch_max(in_use, Ordering::Relaxed);
        Ok(Self { memory: Some(memory), start: 0, len })
    }

    /// [`Self::take`], for bytes that are read again soon: they start off the multiples of 32, where libjpeg-turbo
    /// would write rows past the cache.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_off_line(len: usize) -> Result<Self> {
        const SKEW_BYTES: usize = 16;
        let mut buffer = Self::take(len + SKEW_BYTES)?;
        (buffer.start, buffer.len) = (SKEW_BYTES, len);
        Ok(buffer)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[self.start..][..self.len])
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Self { memory, start, len } = self;
        memory.as_mut().map_or(&mut [], |memory| &mut memory[*start..][..*len])
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        IN_USE_BYTES.fetch_sub(memory.len(), Ordering::Relaxed);
        if memory.len() > LARGEST_POOLED_BYTES {
            return;
        }
        let Some(mut idle) = lock_idle() else { return };
        let evicted = idle.make_room(memory.len());
        idle.used.push(memory);
        // The system call that unmaps waits until the lock is free.
        drop(idle);
        drop(evicted);
    }
}

impl Idle {
    /// Counts `len` bytes in, and returns what has to go for them: first what nobody ever used.
    fn make_room(&mut self, len: usize) -> Vec<Mapping> {
        let mut bytes = IDLE_BYTES.load(Ordering::Relaxed) + len;
        let most = most_idle_bytes(MOST_IN_USE_BYTES.load(Ordering::Relaxed));
        let mut evicted = Vec::new();
        if bytes > most {
            bytes -= self.ahead.len();
            evicted.push(std::mem::replace(&mut self.ahead, Mapping::EMPTY));
        }
        let mut too_many = 0;
        while bytes > most {
            bytes -= self.used[too_many].len();
            too_many += 1;
        }
        evicted.extend(self.used.drain(..too_many));
        IDLE_BYTES.store(bytes, Ordering::Relaxed);
        evicted
    }
}

fn most_idle_bytes(most_in_use_bytes: usize) -> usize {
    most_in_use_bytes.clamp(USUAL_IDLE_BYTES, MOST_IDLE_BYTES)
}

/// Touches memory for buffers to come, and keeps it as idle until they take it or others need the room.
///
/// A virtual machine's memory is slow when it is touched first: its host finds a page for each. A process that is
/// to answer soon does so beforehand. At most a quarter of [`MOST_IDLE_BYTES`] is touched.
///
/// # Errors
/// [`CoreError::Internal`] if the system has no memory left.
pub fn touch_ahead(len: usize) -> Result<()> {
    let len = len.min(LARGEST_POOLED_BYTES) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if len == 0 {
        return Ok(());
    }
    let mut memory = map(len)?;
    memory.iter_mut().step_by(SMALLEST_PAGE_BYTES).for_each(|byte| *byte = 1);
    let Some(mut idle) = lock_idle() else { return Ok(()) };
    IDLE_BYTES.fetch_sub(idle.ahead.len(), Ordering::Relaxed);
    let replaced = std::mem::replace(&mut idle.ahead, Mapping::EMPTY);
    let evicted = idle.make_room(memory.len());
    idle.ahead = memory;
    drop(idle);
    drop((replaced, evicted));
    Ok(())
}

/// Bytes that wait in the pool for reuse.
pub fn idle_bytes() -> usize {
    IDLE_BYTES.load(Ordering::Relaxed)
}

// Classes an eighth of a power of two apart waste at most 12.5 % and let images of like sizes share.
fn size_class(len: usize) -> usize {
    let len = len.max(SMALLEST_CLASS_BYTES);
    let step = len.next_power_of_two() / 16;
    let class = len.div_ceil(step) * step;
    // Whole huge pages, so that the tail of a large buffer is none of small ones.
    if class < 8 * HUGE_PAGE_BYTES { class } else { class.next_multiple_of(HUGE_PAGE_BYTES) }
}

fn take_idle(class: usize) -> Option<Mapping> {
    let mut idle = lock_idle()?;
    // The last one put back is the likeliest to be in the cache still.
    let memory = match idle.used.iter().rposition(|memory| memory.len() == class) {
        Some(at) => idle.used.remove(at),
        None if class >= HUGE_PAGE_BYTES => idle.ahead.split_off(class)?,
        None => return None,
    };
    IDLE_BYTES.fetch_sub(memory.len(), Ordering::Relaxed);
    Some(memory)
}

fn map(len: usize) -> Result<Mapping> {
    Mapping::new(len, len >= HUGE_PAGE_BYTES)
        .map_err(|error| CoreError::Internal(format!("cannot map {len} bytes: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_length_asked_for_and_comes_back() {
        let mut buffer = Buffer::take(100_001).expect("memory");
        assert_eq!(buffer.bytes_mut().len(), 100_001);
        assert_eq!(buffer.bytes().as_ptr() as usize % 4096, 0);
        drop(buffer);
        let mut off_line = Buffer::take_off_line(100_001).expect("memory");
        assert_eq!((off_line.bytes_mut().len(), off_line.bytes().as_ptr() as usize % 32), (100_001, 16));
        drop(off_line);
        assert!(Buffer::take(0).expect("memory").bytes().is_empty());
    }

    #[test]
    fn the_pool_is_bounded_and_keeps_the_most_recently_used() {
        let class = LARGEST_POOLED_BYTES;
        let len = MOST_IDLE_BYTES / class + 3;
        // Untouched pages cost nothing, so this takes addresses, not memory.
        let buffers: Vec<Buffer> = (0..len).map(|_| Buffer::take(class).expect("memory")).collect();
        drop(buffers);
        assert!(idle_bytes() <= MOST_IDLE_BYTES);
        let small = Buffer::take(70_000).expect("memory");
        let address = small.bytes().as_ptr();
        drop(small);
        assert!(idle_bytes() <= MOST_IDLE_BYTES);
        // Other tests share the pool, so they may have taken it in between; but not always.
        let is_back = (0..100).any(|_| Buffer::take(70_000).expect("memory").bytes().as_ptr() == address);
        assert!(is_back);
        drop(Buffer::take(LARGEST_POOLED_BYTES + 1).expect("memory"));
        assert!(idle_bytes() <= MOST_IDLE_BYTES);
    }

    #[test]
    fn as_much_as_was_in_use_may_wait_within_bounds() {
        for (in_use_mib, most_mib) in [(0, 512), (512, 512), (816, 816), (1024, 1024), (9999, 1024)] {
            assert_eq!(most_idle_bytes(in_use_mib << 20), most_mib << 20);
        }
        let before = MOST_IN_USE_BYTES.load(Ordering::Relaxed);
        let buffers = [(); 2].map(|()| Buffer::take(before + 1).expect("addresses"));
        assert!(MOST_IN_USE_BYTES.load(Ordering::Relaxed) > 2 * before);
        drop(buffers);
    }

    #[test]
    fn what_was_touched_ahead_becomes_buffers_of_any_length() {
        let first_bytes_of = |len: usize| {
            touch_ahead(64 << 20).expect("memory");
            let mut buffers =
                [Buffer::take(len).expect("memory"), Buffer::take(len + (3 << 20)).expect("memory")];
            buffers.each_mut().map(|buffer| std::mem::take(&mut buffer.bytes_mut()[0]))
        };
        // Untouched memory is zero. Other tests share the pool and may drive it out, but not always.
        assert!((0..100).any(|n| first_bytes_of((18 << 20) + (n << 12)) == [1, 1]));
        touch_ahead(MOST_IDLE_BYTES * 2).expect("memory");
        assert!(idle_bytes() <= MOST_IDLE_BYTES);
        touch_ahead(1).expect("memory");
    }

    #[test]
    fn classes_cover_and_waste_little() {
        for len in [1, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 14_600_000] {
            let class = size_class(len);
            assert!(class >= len && (len < SMALLEST_CLASS_BYTES || class - len <= len / 8), "{len} {class}");
        }
    }
}
