//! The resize alone, at each SIMD level of this CPU, on one thread.
#![allow(missing_docs, reason = "the macros make public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sglang_mm_ray::common::resize::{Arithmetic, Filter, PassOrder, Size, resize};
use sglang_mm_ray::common::simd::{Level, with_level};

const CASES: [(usize, usize, usize, usize, Filter); 4] = [
    (1920, 1080, 2048, 1152, Filter::Lanczos),
    (512, 512, 1024, 1024, Filter::Lanczos),
    (1920, 1080, 960, 540, Filter::Lanczos),
    (3840, 2160, 1288, 728, Filter::Bicubic),
];

fn levels(criterion: &mut Criterion) {
    for (in_width, in_height, out_width, out_height, filter) in CASES {
        let size = Size { in_width, in_height, out_width, out_height };
        let source: Vec<u8> =
            (0..in_width * in_height * 3).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        let mut out = vec![0; out_width * out_height * 3];
        let name = format!("{in_width}x{in_height} to {out_width}x{out_height} {filter:?}");
        let mut group = criterion.benchmark_group(name);
        group
            .sample_size(20)
            .measurement_time(Duration::from_secs(2))
            .throughput(Throughput::Elements((in_width * in_height).max(out_width * out_height) as u64));
        let arithmetic = Arithmetic::Pillow(PassOrder::VerticalFirstWhenTall);
        for level in Level::available() {
            group.bench_function(BenchmarkId::from_parameter(level), |bencher| {
                bencher.iter(|| {
                    with_level(level, || {
                        resize(black_box(&source), 3, size, filter, arithmetic, black_box(&mut out))
                    })
                    .expect("an available level")
                    .expect("sound arguments");
                });
            });
        }
    }
}

criterion_group!(benches, levels);
criterion_main!(benches);
