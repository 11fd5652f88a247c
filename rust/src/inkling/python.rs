//! `_core.inkling`: the published functions, with the published arguments and results.
//!
//! They take any pair of `rescale_frac` and `rescale_cap`, as published; the processor of the registry is
//! the one that refuses pairs without sense. None of them has the model's defaults.

use pyo3::prelude::*;

use super::{InklingParameters, InklingProcessor};
use crate::common::hash::{ContentDigest, content_digest, digest_u64};
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::common::threads;
use crate::error::{CoreError, Result};
use crate::pipeline::{self, Processed};
use crate::processor::ImageProcessor;
use crate::python::array::flat_array;
use crate::python::edge::run;
use crate::python::errors::to_python;
use crate::python::input::Borrowed;
use crate::python::pixels::HwcArray;
use crate::tensor::Transport;

/// Height, width and bits of an image.
type Patches<'py> = (usize, usize, Bound<'py, PyAny>);
/// The same with the content hash.
type HashedPatches<'py> = (usize, usize, Bound<'py, PyAny>, u64);

fn processor(
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> PyResult<InklingProcessor> {
    let parameters =
        InklingParameters { patch_size, rescale_frac, rescale_cap, ..InklingParameters::default() };
    InklingProcessor::with_any_rescale(parameters).map_err(to_python)
}

fn bits(processed: Processed) -> Result<Buffer> {
    processed
        .tensors
        .into_iter()
        .next()
        .map(|tensor| tensor.data)
        .ok_or_else(|| CoreError::Internal("inkling made no tensor".to_owned()))
}

fn batch(
    py: Python<'_>,
    datas: &[Borrowed],
    processor: &InklingProcessor,
    digests: &[ContentDigest],
) -> PyResult<Vec<Processed>> {
    let slices: Vec<&[u8]> = datas.iter().map(Borrowed::bytes).collect();
    run(py, || {
        pipeline::preprocess_batch(processor, &slices, digests, Transport::Bf16, &Limits::default())
            .into_iter()
            .collect()
    })
}

// Stands in where the result has no hash, so that none is computed.
const NO_DIGEST: ContentDigest = [0; 32];

/// Preprocesses encoded images side by side: `(height, width, bits, hash)` of each, in order. The first bad
/// image raises.
#[pyfunction]
#[pyo3(signature = (datas, patch_size, rescale_frac = None, rescale_cap = None))]
fn preprocess_images<'py>(
    py: Python<'py>,
    datas: Vec<Borrowed>,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> PyResult<Vec<HashedPatches<'py>>> {
    let images = batch(py, &datas, &processor(patch_size, rescale_frac, rescale_cap)?, &[])?;
    images
        .into_iter()
        .map(|image| {
            let (height, width, hash) = (image.height, image.width, digest_u64(&image.digest));
            Ok((height, width, flat_array::<u16>(py, bits(image).map_err(to_python)?)?, hash))
        })
        .collect()
}

/// Decodes, rescales and patchifies one image: `(height, width, bits)`.
#[pyfunction]
#[pyo3(signature = (data, patch_size, rescale_frac = None, rescale_cap = None))]
fn decode_patchify<'py>(
    py: Python<'py>,
    data: Borrowed,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> PyResult<Patches<'py>> {
    let processor = processor(patch_size, rescale_frac, rescale_cap)?;
    let (height, width, bits) = run(py, || {
        threads::pool().install(|| {
            let (data, limits) = (data.bytes(), Limits::default());
            let image = pipeline::preprocess(&processor, data, Some(NO_DIGEST), Transport::Bf16, &limits)?;
            Ok((image.height, image.width, bits(image)?))
        })
    })?;
    Ok((height, width, flat_array::<u16>(py, bits)?))
}

/// [`decode_patchify`] of many images side by side.
#[pyfunction]
#[pyo3(signature = (datas, patch_size, rescale_frac = None, rescale_cap = None))]
fn decode_patchify_batch<'py>(
    py: Python<'py>,
    datas: Vec<Borrowed>,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> PyResult<Vec<Patches<'py>>> {
    let digests = vec![NO_DIGEST; datas.len()];
    let images = batch(py, &datas, &processor(patch_size, rescale_frac, rescale_cap)?, &digests)?;
    images
        .into_iter()
        .map(|image| {
            let (height, width) = (image.height, image.width);
            Ok((height, width, flat_array::<u16>(py, bits(image).map_err(to_python)?)?))
        })
        .collect()
}

/// Patchifies an HWC uint8 array as it is: bits.
#[pyfunction]
#[pyo3(signature = (arr, patch_size))]
fn patchify_rgb<'py>(
    py: Python<'py>,
    arr: HwcArray<'py, u8>,
    patch_size: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let processor = processor(patch_size, None, None)?;
    let pixels = arr.rgb()?;
    let (height, width, values) = (pixels.height(), pixels.width(), pixels.values()?);
    let bits = run(py, || {
        threads::pool().install(|| {
            let plan = processor.plan(width, height, Transport::Bf16)?;
            pipeline::admit(&plan, &Limits::default())?;
            let mut out = Buffer::take(plan.tensors.iter().map(|tensor| tensor.size_bytes()).sum())?;
            processor.finish(values, width, height, Transport::Bf16, out.bytes_mut())?;
            Ok(out)
        })
    })?;
    flat_array::<u16>(py, bits)
}

/// Rescales and patchifies decoded pixels and hashes the bytes they came from: `(height, width, bits, hash)`.
#[pyfunction]
#[pyo3(signature = (arr, raw_bytes, patch_size, rescale_frac = None, rescale_cap = None))]
fn rescale_patchify_hash<'py>(
    py: Python<'py>,
    arr: HwcArray<'py, u8>,
    raw_bytes: Borrowed,
    patch_size: usize,
    rescale_frac: Option<f64>,
    rescale_cap: Option<i64>,
) -> PyResult<HashedPatches<'py>> {
    let processor = processor(patch_size, rescale_frac, rescale_cap)?;
    let pixels = arr.rgb()?;
    let (height, width, values) = (pixels.height(), pixels.width(), pixels.values()?);
    let (height, width, bits, hash) = run(py, || {
        threads::pool().install(|| {
            let limits = Limits::default();
            let digest = content_digest(raw_bytes.bytes());
            let image = pipeline::preprocess_rgb(
                &processor,
                values,
                width,
                height,
                digest,
                Transport::Bf16,
                &limits,
            )?;
            Ok((image.height, image.width, bits(image)?, digest_u64(&digest)))
        })
    })?;
    Ok((height, width, flat_array::<u16>(py, bits)?, hash))
}

/// Adds the functions to the module.
///
/// # Errors
/// What Python raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(preprocess_images, module)?)?;
    module.add_function(wrap_pyfunction!(decode_patchify, module)?)?;
    module.add_function(wrap_pyfunction!(decode_patchify_batch, module)?)?;
    module.add_function(wrap_pyfunction!(patchify_rgb, module)?)?;
    module.add_function(wrap_pyfunction!(rescale_patchify_hash, module)?)
}
