//! The way of one image: limits, digest, decode, process. And of many, side by side.

use std::time::Instant;

use rayon::prelude::*;

use crate::common::hash::{ContentDigest, content_digest};
use crate::common::limits::Limits;
use crate::common::{decode, threads};
use crate::error::Result;
use crate::registry::ImageProcessor;
use crate::tensor::{Tensor, Transport};

/// Seconds spent in each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTimes {
    /// SHA-256 of the encoded bytes.
    pub hash_s: f64,
    /// Decoding to RGB.
    pub decode_s: f64,
    /// Resize, normalise, patchify.
    pub process_s: f64,
}

/// A preprocessed image.
#[derive(Debug)]
pub struct Processed {
    /// The named tensors.
    pub tensors: Vec<Tensor>,
    /// Width after resizing, in pixels.
    pub width: usize,
    /// Height after resizing, in pixels.
    pub height: usize,
    /// Patch grid: temporal, rows, columns.
    pub grid: [usize; 3],
    /// Placeholder tokens.
    pub num_tokens: usize,
    /// SHA-256 of the input.
    pub digest: ContentDigest,
    /// Which decoder made the pixels, such as `"jpeg"`.
    pub decoder: &'static str,
    /// Where the time went.
    pub times: StageTimes,
}

/// Preprocesses one encoded image.
///
/// # Errors
/// Whatever is wrong with the file, its size or the model's view of it.
pub fn preprocess(
    processor: &dyn ImageProcessor,
    data: &[u8],
    transport: Transport,
    limits: &Limits,
) -> Result<Processed> {
    limits.check_input_bytes(data.len())?;
    let started = Instant::now();
    let digest = content_digest(data);
    let hash_s = started.elapsed().as_secs_f64();
    let image = decode::decode(data, limits, |width, height| {
        let plan = processor.plan(width, height, transport)?;
        limits.check_pixels(plan.width as u64, plan.height as u64)?;
        limits.check_patches(plan.grid.iter().product::<usize>() as u64)
    })?;
    let decode_s = started.elapsed().as_secs_f64() - hash_s;
    let mut processed = preprocess_rgb(
        processor,
        image.pixels.bytes(),
        image.width,
        image.height,
        digest,
        transport,
        limits,
    )?;
    processed.decoder = image.decoder;
    processed.times.hash_s = hash_s;
    processed.times.decode_s = decode_s;
    Ok(processed)
}

/// Preprocesses pixels that are already RGB (`height * width * 3` bytes, HWC).
///
/// # Errors
/// As [`preprocess`].
pub fn preprocess_rgb(
    processor: &dyn ImageProcessor,
    rgb: &[u8],
    width: usize,
    height: usize,
    digest: ContentDigest,
    transport: Transport,
    limits: &Limits,
) -> Result<Processed> {
    let plan = processor.plan(width, height, transport)?;
    limits.check_pixels(plan.width as u64, plan.height as u64)?;
    limits.check_patches(plan.grid.iter().product::<usize>() as u64)?;
    let started = Instant::now();
    let tensors = processor.process(rgb, width, height, transport)?;
    Ok(Processed {
        tensors,
        width: plan.width,
        height: plan.height,
        grid: plan.grid,
        num_tokens: plan.num_tokens,
        digest,
        decoder: "rgb",
        times: StageTimes { process_s: started.elapsed().as_secs_f64(), ..StageTimes::default() },
    })
}

/// Preprocesses encoded images side by side; one bad image leaves the others alone.
pub fn preprocess_batch(
    processor: &dyn ImageProcessor,
    datas: &[&[u8]],
    transport: Transport,
    limits: &Limits,
) -> Vec<Result<Processed>> {
    threads::pool()
        .install(|| datas.par_iter().map(|data| preprocess(processor, data, transport, limits)).collect())
}
