//! Normalising and patchifying alone, at each SIMD level of this CPU, on one thread, into a buffer that is reused.
#![allow(missing_docs, reason = "the macros make public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sglang_mm_ray::common::memory::Buffer;
use sglang_mm_ray::common::simd::{Level, with_level};
use sglang_mm_ray::common::transforms::normalize::Normaliser;
use sglang_mm_ray::inkling::patchify::{Pixels, grid, patchify};
use sglang_mm_ray::tensor::Transport;

const SIZES: [(usize, usize); 2] = [(1024, 1024), (2048, 1152)];
const PATCH_PX: usize = 40;

fn levels(criterion: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let normaliser =
        Normaliser::new([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);
    for (width, height) in SIZES {
        let pixels: Vec<u8> =
            (0..width * height * 3).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        let (rows, columns) = grid(width, height, PATCH_PX);
        for transport in [Transport::Bf16, Transport::Float32] {
            let bytes = rows * columns * PATCH_PX * PATCH_PX * 3 * transport.dtype().size_bytes();
            let mut out = Buffer::take(bytes).expect("memory");
            let mut group = criterion.benchmark_group(format!("{width}x{height} to {transport:?}"));
            group
                .sample_size(20)
                .measurement_time(Duration::from_secs(2))
                .throughput(Throughput::Bytes(bytes as u64));
            for level in Level::available() {
                group.bench_function(BenchmarkId::from_parameter(level), |bencher| {
                    one_thread.install(|| {
                        bencher.iter(|| {
                            let (pixels, out) = (black_box(&pixels), black_box(out.bytes_mut()));
                            with_level(level, || {
                                patchify(
                                    &normaliser,
                                    Pixels { bytes: pixels, width, height },
                                    PATCH_PX,
                                    transport,
                                    bytes,
                                    out,
                                )
                            })
                            .expect("an available level")
                            .expect("sound arguments");
                        });
                    });
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, levels);
criterion_main!(benches);
