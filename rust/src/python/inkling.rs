//! `_core.inkling`: the published functions, with the published arguments and results.
//!
//! They take any pair of `rescale_frac` and `rescale_cap`, as published; the processor of the registry is
//! the one that refuses pairs without sense. None of them has the model's defaults.

use pyo3::prelude::*;

use crate::common::hash::{ContentDigest, content_digest, digest_u64};
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::common::threads;
use crate::error::{CoreError, Result};
use crate::families::inkling::Inkling;
use crate::finish::{Resized, finish, finished_bytes};
use crate::pipeline::{self, Job, Processed};
use crate::processor::Processor;
use crate::python::array::flat_array;
use crate::python::edge::run;
use crate::python::errors::to_python;
use crate::python::input::Borrowed;
use crate::python::pixels::HwcArray;
use crate::recipe::{Declared, Request, Source};
use crate::tensor::Transport;

/// Height, width and bits of an image.
type Patches<'py> = (usize, usize, Bound<'py, PyAny>);
/// The same with the content hash.
type HashedPatches<'py> = (usize, usize, Bound<'py, PyAny>, u64);

// What the published functions work with: the model's arithmetic, and no limit but the defaults.
struct Published {
    processor: Processor,
    request: Request,
    limits: Limits,
}

impl Published {
    fn new(patch_size: usize, rescale_frac: Option<f64>, rescale_cap: Option<i64>) -> PyResult<Self> {
        let family = Inkling { patch_size, rescale_frac, rescale_cap, ..Inkling::default() };
        let made = family.check_patches().and_then(|()| Declared::new(family));
        let processor = Processor::new("inkling", made.map_err(to_python)?);
        Ok(Self { processor, request: Request::default(), limits: Limits::default() })
    }

    fn job(&self) -> Job<'_> {
        let Self { processor, request, limits } = self;
        Job { processor, request, transport: Transport::Bf16, limits }
    }
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
    published: &Published,
    digests: &[ContentDigest],
) -> PyResult<Vec<Processed>> {
    let slices: Vec<&[u8]> = datas.iter().map(Borrowed::bytes).collect();
    run(py, || pipeline::preprocess_batch(published.job(), &slices, digests).into_iter().collect())
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
    let images = batch(py, &datas, &Published::new(patch_size, rescale_frac, rescale_cap)?, &[])?;
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
    let published = Published::new(patch_size, rescale_frac, rescale_cap)?;
    let (height, width, bits) = run(py, || {
        threads::pool().install(|| {
            let image = published.job().preprocess(data.bytes(), Some(NO_DIGEST))?;
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
    let images = batch(py, &datas, &Published::new(patch_size, rescale_frac, rescale_cap)?, &digests)?;
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
    let published = Published::new(patch_size, None, None)?;
    let pixels = arr.rgb()?;
    let (height, width, values) = (pixels.height(), pixels.width(), pixels.values()?);
    let bits = run(py, || {
        threads::pool().install(|| {
            let Published { processor, limits, .. } = &published;
            let plan = processor.plan_of_resized(Source::opaque(width, height))?;
            pipeline::admit(&plan, Transport::Bf16, limits)?;
            let mut out = Buffer::take(finished_bytes(&plan, Transport::Bf16)?)?;
            let image = Resized { pixels: values, plan: &plan };
            finish(processor, image, Transport::Bf16, out.bytes_mut())?;
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
    let published = Published::new(patch_size, rescale_frac, rescale_cap)?;
    let pixels = arr.rgb()?;
    let (height, width, values) = (pixels.height(), pixels.width(), pixels.values()?);
    let (height, width, bits, hash) = run(py, || {
        threads::pool().install(|| {
            let digest = content_digest(raw_bytes.bytes());
            let image = published.job().preprocess_rgb(values, width, height, digest)?;
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
