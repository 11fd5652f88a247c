//! Memory straight from the system, which can be given back and cut page by page.
#![allow(unsafe_code)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Pages of this process alone, zero until they are written to; they go back to the system when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its pages as a box does, and gives them out only as its own borrows do.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// No page at all.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), len: 0 };

    /// Maps `len` bytes, huge pages if there are and `huge` asks for them.
    ///
    /// # Errors
    /// Whatever the system says: it has no memory left, or `len` is 0.
    pub fn new(len: usize, huge: bool) -> io::Result<Self> {
        const OURS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at a place of the system's choice touches no memory that is in use.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, OURS, -1, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(map.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        #[cfg(target_os = "linux")]
        if huge {
            // SAFETY: advice on our own pages. A kernel without huge pages refuses; they work all the same.
            unsafe { libc::madvise(map, len, libc::MADV_HUGEPAGE) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = huge;
        Ok(Self { start, len })
    }

    /// Cuts the last `len` bytes off, as they are; `None` if there are fewer, or they are not whole pages.
    pub fn split_off(&mut self, len: usize) -> Option<Self> {
        let left = self.len.checked_sub(len)?;
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        if len == 0 || !left.is_multiple_of(page) {
            return None;
        }
        // SAFETY: within the mapping, or just behind it.
        let start = unsafe { self.start.add(left) };
        self.len = left;
        Some(Self { start, len })
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are ours, readable, initialised by the system, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, writable too, and nobody else has a reference while `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: whole pages, ours alone since `split_off` divides them, and no reference is left.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_what_was_written_and_go_on_their_own() {
        let mut whole = Mapping::new(1 << 20, false).expect("memory");
        assert!(whole.iter().all(|&byte| byte == 0));
        for (at, byte) in whole.iter_mut().enumerate() {
            *byte = (at >> 12) as u8;
        }
        let mut back = whole.split_off(3 << 18).expect("whole pages");
        let middle = back.split_off(1 << 18).expect("whole pages");
        assert_eq!((whole.len(), back.len(), middle.len()), (1 << 18, 1 << 19, 1 << 18));
        drop(back);
        assert!(whole.iter().enumerate().all(|(at, &byte)| byte == (at >> 12) as u8));
        assert!(middle.iter().enumerate().all(|(at, &byte)| byte == ((at >> 12) + 192) as u8));
        whole.fill(7);
        assert_eq!(middle[0], 192);
    }

    #[test]
    fn what_cannot_be_cut_stays_whole() {
        let mut whole = Mapping::new(1 << 20, false).expect("memory");
        for len in [0, 1, (1 << 20) - 1, (1 << 20) + 1, usize::MAX] {
            assert!(whole.split_off(len).is_none(), "{len}");
        }
        assert_eq!(whole.len(), 1 << 20);
        assert_eq!(whole.split_off(1 << 20).map(|all| all.len()), Some(1 << 20));
        assert!(whole.is_empty() && whole.split_off(4096).is_none());
        assert!(Mapping::EMPTY.is_empty());
        assert!(Mapping::new(0, true).is_err());
    }
}
