//! `_core.common`: what every model family shares.

use pyo3::prelude::*;

use super::array::flat_array;
use super::edge::run;
use super::errors::to_python;
use super::input::Borrowed;
use super::limits::PyLimits;
use super::pixels::{Hwc, HwcArray};
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::common::resize::{self, Arithmetic, Filter, PassOrder, Size};
use crate::common::{self, base64, decode, hash};
use crate::error::CoreError;

/// Resizes an HWC uint8 array as Pillow does; flat result of `out_h * out_w * 3` values.
#[pyfunction]
#[pyo3(signature = (arr, out_w, out_h, resample = "pil_lanczos"))]
fn resize_rgb<'py>(
    py: Python<'py>,
    arr: HwcArray<'py, u8>,
    out_w: usize,
    out_h: usize,
    resample: &str,
) -> PyResult<Bound<'py, PyAny>> {
    resize_pixels(py, &arr.rgb()?, out_w, out_h, resample)
}

/// Resizes an HWC uint8 array of 1, 3 or 4 channels as Pillow does; flat result of `out_h * out_w * c` values.
#[pyfunction]
#[pyo3(name = "resize", signature = (arr, out_w, out_h, resample = "pil_lanczos"))]
fn resize_any<'py>(
    py: Python<'py>,
    arr: HwcArray<'py, u8>,
    out_w: usize,
    out_h: usize,
    resample: &str,
) -> PyResult<Bound<'py, PyAny>> {
    resize_pixels(py, &arr.row_major()?, out_w, out_h, resample)
}

fn resize_pixels<'py>(
    py: Python<'py>,
    pixels: &Hwc<'_, u8>,
    out_w: usize,
    out_h: usize,
    resample: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (filter, arithmetic) = parse_filter(resample)?;
    let (channels, source) = (pixels.channels(), pixels.values()?);
    let size =
        Size { in_width: pixels.width(), in_height: pixels.height(), out_width: out_w, out_height: out_h };
    let out = run(py, || {
        Limits::default().check_pixels(out_w as u64, out_h as u64)?;
        let mut out = Buffer::take(out_w * out_h * channels)?;
        let work =
            |out: &mut Buffer| resize::resize(source, channels, size, filter, arithmetic, out.bytes_mut());
        // What no thread would share is not worth a change of thread, nor starting the pool.
        if common::threads::thread_count() > 1 && resize::splits(source.len() + out.len()) {
            common::threads::pool().install(|| work(&mut out))?;
        } else {
            work(&mut out)?;
        }
        Ok(out)
    })?;
    flat_array::<u8>(py, out)
}

fn parse_filter(name: &str) -> PyResult<(Filter, Arithmetic)> {
    let pillow = Arithmetic::Pillow(resize::pass_order());
    match name {
        "pil_lanczos" => Ok((Filter::Lanczos, pillow)),
        "pil_bicubic" => Ok((Filter::Bicubic, pillow)),
        "pil_bilinear" => Ok((Filter::Bilinear, pillow)),
        "pil_box" => Ok((Filter::Box, pillow)),
        "pil_hamming" => Ok((Filter::Hamming, pillow)),
        "aten_u8" => Ok((Filter::Bicubic, Arithmetic::Aten)),
        other => Err(to_python(CoreError::argument(format!(
            "resample {other:?} is unknown; choose pil_lanczos, pil_bicubic, pil_bilinear, pil_box, \
             pil_hamming or aten_u8"
        )))),
    }
}

/// Output size `(width, height)` of Inkling's rescale.
#[pyfunction]
#[pyo3(signature = (w, h, rescale_frac = None, rescale_cap = None))]
fn scaled_dims(w: usize, h: usize, rescale_frac: Option<f64>, rescale_cap: Option<i64>) -> (usize, usize) {
    common::scaled_dims(w, h, rescale_frac, rescale_cap)
}

/// Decodes an image to RGB: `(height, width, flat uint8 array)`.
#[pyfunction]
fn image_decode_rgb<'py>(py: Python<'py>, data: Borrowed) -> PyResult<(usize, usize, Bound<'py, PyAny>)> {
    let image = run(py, || common::image_decode_rgb(data.bytes()))?;
    Ok((image.height, image.width, flat_array::<u8>(py, image.pixels)?))
}

/// Reads the header only: `(format, width, height)`.
#[pyfunction]
fn probe(py: Python<'_>, data: Borrowed) -> PyResult<(&'static str, usize, usize)> {
    run(py, || common::probe(data.bytes()).map(|header| (header.format, header.width, header.height)))
}

/// Decodes an image to RGB under limits: `(height, width, flat uint8 array, name of the decoder)`.
#[pyfunction]
#[pyo3(signature = (data, limits = None))]
fn decode_rgb<'py>(
    py: Python<'py>,
    data: Borrowed,
    limits: Option<PyLimits>,
) -> PyResult<(usize, usize, Bound<'py, PyAny>, &'static str)> {
    let limits = limits.map_or_else(Limits::default, PyLimits::inner);
    let image = run(py, || decode::decode(data.bytes(), &limits, |_, _| Ok(())))?;
    Ok((image.height, image.width, flat_array::<u8>(py, image.pixels)?, image.decoder))
}

/// First 8 bytes of SHA-256, big-endian.
#[pyfunction]
fn data_hash(py: Python<'_>, data: Borrowed) -> PyResult<u64> {
    run(py, || Ok(hash::data_hash(data.bytes())))
}

/// First 8 bytes of BLAKE3, big-endian: what SGLang 0.5.23 has under this name. Nothing here keys on it.
#[pyfunction]
fn content_hash(py: Python<'_>, data: Borrowed) -> PyResult<u64> {
    run(py, || Ok(hash::blake3_u64(data.bytes())))
}

/// Bytes of a `data:` URL or of bare base64. Unlike the published one it opens no file and no connection:
/// these are for `PreprocessPool`, whose policy says which.
#[pyfunction]
fn fetch_bytes(py: Python<'_>, source: &str) -> PyResult<Vec<u8>> {
    run(py, || base64::inline_bytes(source))
}

/// The whole SHA-256 digest, 32 bytes.
#[pyfunction]
fn content_digest(py: Python<'_>, data: Borrowed) -> PyResult<[u8; 32]> {
    run(py, || Ok(hash::content_digest(data.bytes())))
}

/// Decodes standard base64, strictly.
#[pyfunction]
fn base64_decode(py: Python<'_>, encoded: &str) -> PyResult<Vec<u8>> {
    run(py, || base64::base64_decode(encoded))
}

/// Sets the pass order of the resize: True where Pillow runs the vertical pass of tall pictures first.
#[pyfunction]
fn set_vertical_first_when_tall(enabled: bool) {
    resize::set_pass_order(if enabled {
        PassOrder::VerticalFirstWhenTall
    } else {
        PassOrder::HorizontalFirst
    });
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(resize_any, module)?)?;
    module.add_function(wrap_pyfunction!(resize_rgb, module)?)?;
    module.add_function(wrap_pyfunction!(scaled_dims, module)?)?;
    module.add_function(wrap_pyfunction!(image_decode_rgb, module)?)?;
    module.add_function(wrap_pyfunction!(probe, module)?)?;
    module.add_function(wrap_pyfunction!(decode_rgb, module)?)?;
    module.add_function(wrap_pyfunction!(data_hash, module)?)?;
    module.add_function(wrap_pyfunction!(content_digest, module)?)?;
    module.add_function(wrap_pyfunction!(content_hash, module)?)?;
    module.add_function(wrap_pyfunction!(fetch_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(base64_decode, module)?)?;
    module.add_function(wrap_pyfunction!(set_vertical_first_when_tall, module)?)
}
