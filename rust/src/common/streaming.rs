//! Stores past the cache, for output that is larger than it.
//!
//! A plain store first reads the line it writes to. For megabytes that nobody reads again soon, that read is a
//! third of the traffic; measured on the patchify kernel it costs more than the whole arithmetic.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::simd::Level;

/// Copies past the cache; what it wrote is visible to other threads once it is dropped.
pub struct Streamer {
    // The fence orders the stores of its own thread, so it must not be dropped on another; nor made but by `for_level`.
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Streamer {
    /// A streamer, if `level` has stores past the cache.
    pub fn for_level(level: Level) -> Option<Self> {
        matches!(level, Level::Avx2 | Level::Avx512).then_some(Self { _stays_on_its_thread: PhantomData })
    }

    /// Copies `source` to `out`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(&self, source: &[u8], out: &mut [u8]) {
        assert_eq!(source.len(), out.len(), "a copy needs equal lengths");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: both levels that have a streamer have AVX.
        unsafe {
            copy_avx(source, out);
        }
        #[cfg(not(target_arch = "x86_64"))]
        out.copy_from_slice(source);
    }
}

impl Drop for Streamer {
    fn drop(&mut self) {
        // Streamed stores are not ordered by what hands the buffer to the next thread.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has SSE.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn copy_avx(source: &[u8], out: &mut [u8]) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_stream_si256};
    const BLOCK: usize = 32;
    let head = out.as_ptr().align_offset(BLOCK).min(out.len());
    let (source_head, source) = source.split_at(head);
    let (out_head, out) = out.split_at_mut(head);
    out_head.copy_from_slice(source_head);
    let (blocks, rest) = source.as_chunks::<BLOCK>();
    let (out_blocks, out_rest) = out.as_chunks_mut::<BLOCK>();
    for (block, out) in blocks.iter().zip(out_blocks) {
        // SAFETY: both arrays have the 32 bytes, and `out` starts at a multiple of 32: the head ends there.
        unsafe { _mm256_stream_si256(out.as_mut_ptr().cast(), _mm256_loadu_si256(block.as_ptr().cast())) };
    }
    out_rest.copy_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_byte_at_every_alignment_and_no_other() {
        let source: Vec<u8> = (0..200_u8).collect();
        for streamer in Level::available().filter_map(Streamer::for_level) {
            for start in 0..40 {
                for len in [0, 1, 31, 32, 33, 64, 100, 127] {
                    let mut out = [0xaa; 200];
                    streamer.copy(&source[3..3 + len], &mut out[start..start + len]);
                    assert_eq!(out[start..start + len], source[3..3 + len], "{start} {len}");
                    assert!(out[..start].iter().chain(&out[start + len..]).all(|&byte| byte == 0xaa));
                }
            }
        }
    }
}
