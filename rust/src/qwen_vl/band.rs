//! A band of patches, written through the cache or past it.

use super::patchify::Layout;

/// Streamed parts are gathered in this much memory, which stays in the L1 cache.
pub const STAGE_BYTES: usize = 24 << 10;

const LINE_BYTES: usize = 64;

#[repr(C, align(64))]
struct Stage([u8; STAGE_BYTES]);

/// Copies past the cache.
pub type Stream = fn(&[u8], &mut [u8]);

/// Writes the patches of `band` into `out`. With `stream`, they are gathered by whole cache lines, which that
/// function then takes past the cache; what is left over, or is not aligned, is written directly.
pub fn write<T: bytemuck::Pod>(
    layout: Layout,
    band: usize,
    out: &mut [T],
    patches: impl Fn(&mut dyn Iterator<Item = usize>, &mut [T]),
    stream: Option<Stream>,
) {
    let patch_bytes = layout.patch_values() * size_of::<T>();
    let staged_bytes = staged_patches(patch_bytes) * patch_bytes;
    let mut corners = layout.corners(band);
    let aligned = (out.as_ptr() as usize).is_multiple_of(16);
    let Some(stream) = stream.filter(|_| staged_bytes > 0 && aligned) else {
        return patches(&mut corners, out);
    };
    let mut stage = Stage([0; STAGE_BYTES]);
    let stage = &mut stage.0[..staged_bytes];
    let mut parts = out.chunks_exact_mut(staged_bytes / size_of::<T>());
    for part in &mut parts {
        patches(&mut corners, bytemuck::cast_slice_mut(stage));
        stream(stage, bytemuck::cast_slice_mut(part));
    }
    patches(&mut corners, parts.into_remainder());
}

// How many patches make whole cache lines and half fill the stage, or 0 if it does not hold so many.
fn staged_patches(patch_bytes: usize) -> usize {
    let shared_bits = patch_bytes.trailing_zeros().min(LINE_BYTES.trailing_zeros());
    let patches = LINE_BYTES >> shared_bits;
    let rounds = (STAGE_BYTES / 2 / (patch_bytes * patches).max(1)).max(1);
    if patch_bytes * patches * rounds <= STAGE_BYTES { patches * rounds } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_holds_whole_lines_or_nothing() {
        for patch_bytes in (2..40_000).step_by(2) {
            let staged = staged_patches(patch_bytes) * patch_bytes;
            assert!(staged <= STAGE_BYTES && staged.is_multiple_of(LINE_BYTES), "{patch_bytes}");
        }
        assert_eq!(staged_patches(4704), 2);
        assert_eq!(staged_patches(6144), 2);
        assert_eq!(staged_patches(2352), 4);
        assert_eq!(staged_patches(1176), 8);
        assert_eq!(staged_patches(40_000), 0);
    }
}
