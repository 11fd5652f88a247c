//! What must hold for every input of the decoders, whatever it is.

use sglang_mm_ray::common::decode::{Format, RgbImage, decode, probe, sniff};
use sglang_mm_ray::common::limits::Limits;
use sglang_mm_ray::common::memory::Buffer;
use sglang_mm_ray::error::{CoreError, Result};

// Small, so that the fuzzer spends its time on structure and not on pixels.
const LIMITS: Limits = Limits { max_input_bytes: 1 << 20, max_pixels: 1 << 18, max_patches: 1 << 12 };

/// Checks `data` if it is of `format`.
pub fn check_format(data: &[u8], format: Format) {
    if sniff(data) == format {
        check(data);
    }
}

/// Checks `data`.
///
/// # Panics
/// If an invariant is broken.
pub fn check(data: &[u8]) {
    let header = probe(data);
    let first =
        decode_into_poison(data, header.as_ref().map_or(0, |header| header.width * header.height), 0x5a);
    match first {
        Ok(image) => {
            let header = header.expect("what can be decoded can be probed");
            assert_eq!((header.width, header.height), (image.width, image.height));
            assert_eq!(image.pixels.len(), image.width * image.height * 3);
            let again = decode_into_poison(data, image.width * image.height, 0xa5).expect("decoded before");
            assert!(image.pixels.bytes() == again.pixels.bytes(), "pixels that nobody wrote");
        }
        Err(error) => assert!(!matches!(error, CoreError::Internal(_)), "{error}"),
    }
}

// The pool hands out memory as it was left; different leftovers show pixels that a decoder forgot.
fn decode_into_poison(data: &[u8], pixels: usize, poison: u8) -> Result<RgbImage> {
    if pixels as u64 <= LIMITS.max_pixels {
        Buffer::take(pixels * 3)?.bytes_mut().fill(poison);
    }
    decode(data, &LIMITS, |_, _| Ok(()))
}

/// Runs the whole path of one image, as far as `data` gets.
///
/// # Panics
/// If it ends in an error that no input may cause.
pub fn check_preprocess(data: &[u8]) {
    use sglang_mm_ray::pipeline::Job;
    use sglang_mm_ray::recipe::Request;
    use sglang_mm_ray::{registry, tensor::Transport};
    let processor = registry::default_registry()
        .get("inkling")
        .and_then(|family| family.configure(r#"{"patch_size": 8, "rescale_frac": 1.5, "rescale_cap": 256}"#))
        .expect("valid parameters");
    let (transport, data) = match data.split_first() {
        Some((0, rest)) => (Transport::Uint8, rest),
        Some((1, rest)) => (Transport::Float32, rest),
        _ => (Transport::Bf16, data),
    };
    let job = Job { processor: &processor, request: &Request::default(), transport, limits: &LIMITS };
    // The pool hands out memory as it was left; different leftovers show values that nobody wrote.
    let preprocess = |poison: u8| {
        if let Ok(header) = probe(data)
            && (header.width * header.height) as u64 <= LIMITS.max_pixels
            && let Ok(plan) = processor
                .plan(sglang_mm_ray::recipe::Source::opaque(header.width, header.height), job.request)
        {
            let specs = plan.specs(transport);
            let sizes = specs.iter().map(|spec| spec.size_bytes()).filter(|&bytes| bytes < 1 << 24);
            sizes.for_each(|bytes| {
                Buffer::take(bytes).expect("memory").bytes_mut().fill(poison);
            });
        }
        job.preprocess(data, None)
    };
    match (preprocess(0x5a), preprocess(0xa5)) {
        (Ok(first), Ok(second)) => {
            assert!(first.num_tokens > 0);
            for (first, second) in first.tensors.iter().zip(&second.tensors) {
                assert!(first.data.bytes() == second.data.bytes(), "values that nobody wrote");
            }
        }
        (first, second) => {
            let error = first.err().zip(second.err()).expect("the same verdict twice").0;
            assert!(!matches!(error, CoreError::Internal(_)), "{error}");
        }
    }
}
