//! Normalising and cutting alone, at each SIMD level of this CPU, on one thread, into a buffer that is reused.
#![allow(missing_docs, reason = "the macros make public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sglang_mm_ray::common::memory::Buffer;
use sglang_mm_ray::common::simd::{Level, with_level};
use sglang_mm_ray::finish::{Resized, finish, finished_bytes};
use sglang_mm_ray::recipe::Source;
use sglang_mm_ray::registry::default_registry;
use sglang_mm_ray::tensor::Transport;

const SIZES: [(usize, usize); 2] = [(1008, 1008), (2048, 1152)];

fn levels(criterion: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    // One family of each kind: interleaved patches, and planar ones, for which only one size is whole tokens.
    for family in ["inkling", "qwen_vl"] {
        let processor = default_registry().get(family).and_then(|family| family.configure("{}"));
        let processor = processor.expect("defaults are valid");
        for (width, height) in SIZES {
            let Ok(plan) = processor.plan_of_resized(Source::opaque(width, height)) else { continue };
            let pixels: Vec<u8> =
                (0..width * height * 3).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
            for transport in [Transport::Bf16, Transport::Float32] {
                let bytes = finished_bytes(&plan, transport).expect("normalised");
                let mut out = Buffer::take(bytes).expect("memory");
                let mut group =
                    criterion.benchmark_group(format!("{family} {width}x{height} to {transport:?}"));
                group
                    .sample_size(20)
                    .measurement_time(Duration::from_secs(2))
                    .throughput(Throughput::Bytes(bytes as u64));
                for level in Level::available() {
                    group.bench_function(BenchmarkId::from_parameter(level), |bencher| {
                        one_thread.install(|| {
                            bencher.iter(|| {
                                let image = Resized { pixels: black_box(&pixels), plan: &plan };
                                let out = black_box(out.bytes_mut());
                                with_level(level, || finish(&processor, image, transport, out))
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
}

criterion_group!(benches, levels);
criterion_main!(benches);
