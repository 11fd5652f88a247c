//! Pooled byte buffers: large, page-aligned, reused, bounded.
//!
//! A page fault costs more than the arithmetic on the page, so buffers go back to a process-wide pool when
//! dropped, and large ones ask for huge pages. Their content is whatever was there before: whoever takes a
//! buffer writes all of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;

use crate::error::{CoreError, Result};

const SMALLEST_CLASS_BYTES: usize = 64 << 10;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const MOST_IDLE_BYTES: usize = 512 << 20;

static IDLE: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());
static IDLE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A page-aligned byte buffer from the pool.
#[derive(Debug)]
pub struct Buffer {
    memory: Option<MmapMut>,
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
        Ok(Self { memory: Some(memory), len })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory[..len])
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
        // `try_lock`: a child forked while another thread held the lock must not wait for it.
        if IDLE_BYTES.load(Ordering::Relaxed) + memory.len() <= MOST_IDLE_BYTES
            && let Ok(mut idle) = IDLE.try_lock()
        {
            IDLE_BYTES.fetch_add(memory.len(), Ordering::Relaxed);
            idle.push(memory);
        }
    }
}

/// Bytes that wait in the pool for reuse.
pub fn idle_bytes() -> usize {
    IDLE_BYTES.load(Ordering::Relaxed)
}

// Classes an eighth of a power of two apart waste at most 12.5 % and let images of like sizes share.
fn size_class(len: usize) -> usize {
    let len = len.max(SMALLEST_CLASS_BYTES);
    let step = len.next_power_of_two() / 16;
    len.div_ceil(step) * step
}

fn take_idle(class: usize) -> Option<MmapMut> {
    let mut idle = IDLE.try_lock().ok()?;
    let at = idle.iter().rposition(|memory| memory.len() == class)?;
    let memory = idle.swap_remove(at);
    IDLE_BYTES.fetch_sub(memory.len(), Ordering::Relaxed);
    Some(memory)
}

fn map(len: usize) -> Result<MmapMut> {
    let memory = MmapMut::map_anon(len)
        .map_err(|error| CoreError::Internal(format!("cannot map {len} bytes: {error}")))?;
    #[cfg(target_os = "linux")]
    if len >= HUGE_PAGE_BYTES {
        // A kernel without huge pages refuses; the buffer works all the same.
        let _ = memory.advise(memmap2::Advice::HugePage);
    }
    Ok(memory)
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
        assert!(Buffer::take(0).expect("memory").bytes().is_empty());
    }

    #[test]
    fn classes_cover_and_waste_little() {
        for len in [1, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 14_600_000] {
            let class = size_class(len);
            assert!(class >= len && (len < SMALLEST_CLASS_BYTES || class - len <= len / 8), "{len} {class}");
        }
    }
}
