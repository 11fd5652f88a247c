//! No kernel touches a byte outside its buffers: they lie between pages that nobody may read or write.
#![allow(unsafe_code)]

use sglang_mm_ray::common::resize::{Arithmetic, Filter, PassOrder, Size, resize};
use sglang_mm_ray::common::simd::{Level, with_level};

// The generator of the crate's own tests, which a test beside the crate cannot see.
#[path = "../src/common/random.rs"]
mod random;
use random::Random;

/// Which page the buffer touches.
#[derive(Debug, Clone, Copy)]
enum Touching {
    Front,
    Back,
}

/// Memory of which the pages before and behind cannot be touched.
struct Guarded {
    map: *mut u8,
    map_len: usize,
    start: usize,
    len: usize,
}

impl Guarded {
    fn new(len: usize, touching: Touching) -> Self {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("page size");
        let room = len.next_multiple_of(page);
        let map_len = room + 2 * page;
        // SAFETY: a fresh mapping; its first and last page lie within it.
        let map = unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                map_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(map, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(map, page, libc::PROT_NONE), 0);
            assert_eq!(libc::mprotect(map.byte_add(page + room), page, libc::PROT_NONE), 0);
            map.cast::<u8>()
        };
        let start = match touching {
            Touching::Front => page,
            Touching::Back => page + room - len,
        };
        Self { map, map_len, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the pages between the guards are readable, writable and ours.
        unsafe { std::slice::from_raw_parts_mut(self.map.add(self.start), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference to it is left.
        unsafe { libc::munmap(self.map.cast(), self.map_len) };
    }
}

fn within(random: &mut Random, least: usize, most: usize) -> usize {
    least + random.below(most - least + 1)
}

fn check(random: &mut Random, size: Size, levels: &[Level]) {
    const FILTERS: [Filter; 5] =
        [Filter::Lanczos, Filter::Bicubic, Filter::Bilinear, Filter::Box, Filter::Hamming];
    const ARITHMETICS: [Arithmetic; 3] = [
        Arithmetic::Pillow(PassOrder::HorizontalFirst),
        Arithmetic::Pillow(PassOrder::VerticalFirstWhenTall),
        Arithmetic::Aten,
    ];
    let channels = [1, 3, 4][within(random, 0, 2)];
    let (filter, arithmetic) = (FILTERS[within(random, 0, 4)], ARITHMETICS[within(random, 0, 2)]);
    for touching in [Touching::Front, Touching::Back] {
        let mut source = Guarded::new(size.in_width * size.in_height * channels, touching);
        source.bytes().fill_with(|| random.bits() as u8);
        let mut results = levels.iter().map(|&level| {
            let mut out = Guarded::new(size.out_width * size.out_height * channels, touching);
            let run = || resize(source.bytes(), channels, size, filter, arithmetic, out.bytes());
            with_level(level, run).expect("an available level").expect("sound arguments");
            (level, out.bytes().to_vec())
        });
        let (_, expected) = results.next().expect("the scalar level");
        for (level, found) in results {
            let differs = expected.iter().zip(&found).position(|(expected, found)| expected != found);
            assert_eq!(differs, None, "{level} {size:?} x{channels} {filter:?} {arithmetic:?} {touching:?}");
        }
    }
}

#[test]
fn kernels_stay_within_their_buffers_and_agree() {
    let levels: Vec<_> = Level::available().collect();
    assert_eq!(levels[0], Level::Scalar);
    let mut random = Random(0x853c_49e6_748f_ea9b);
    // Valgrind runs this too, some fifty times slower.
    let rounds = std::env::var("RESIZE_ROUNDS").map_or(400, |text| text.parse().expect("a number"));
    for most in [3, 24, 90] {
        for _ in 0..rounds {
            let mut side = || within(&mut random, 1, most);
            let size = Size { in_width: side(), in_height: side(), out_width: side(), out_height: side() };
            check(&mut random, size, &levels);
        }
    }
    for _ in 0..rounds / 4 {
        let (long, short) = (within(&mut random, 300, 3000), within(&mut random, 1, 5));
        let (small, other) = (within(&mut random, 1, 30), within(&mut random, 1, 5));
        let wide = Size { in_width: long, in_height: short, out_width: small, out_height: other };
        let tall = Size { in_width: short, in_height: long, out_width: other, out_height: small };
        for size in [wide, tall] {
            check(&mut random, size, &levels);
            let back = Size {
                in_width: size.out_width,
                in_height: size.out_height,
                out_width: size.in_width,
                out_height: size.in_height,
            };
            check(&mut random, back, &levels);
        }
    }
}

#[test]
fn splitting_over_threads_changes_nothing() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(5).build().expect("threads");
    let mut random = Random(0xda94_2042_e4dd_58b5);
    for (in_width, in_height, out_width, out_height) in [
        (1920, 1080, 2048, 1152),
        (1000, 3000, 700, 400),
        (2000, 2000, 2000, 501),
        (2000, 1501, 999, 1501),
        (1200, 5000, 1199, 64),
    ] {
        let size = Size { in_width, in_height, out_width, out_height };
        let source: Vec<u8> = (0..in_width * in_height * 3).map(|_| random.bits() as u8).collect();
        let arithmetic = Arithmetic::Pillow(PassOrder::VerticalFirstWhenTall);
        let mut alone = vec![0; out_width * out_height * 3];
        resize(&source, 3, size, Filter::Lanczos, arithmetic, &mut alone).expect("sound arguments");
        for level in Level::available() {
            let mut split = vec![0; alone.len()];
            pool.install(|| {
                with_level(level, || resize(&source, 3, size, Filter::Lanczos, arithmetic, &mut split))
            })
            .expect("an available level")
            .expect("sound arguments");
            assert!(alone == split, "{level} {size:?}");
        }
    }
}
