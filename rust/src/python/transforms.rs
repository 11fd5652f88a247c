//! `_core.transforms`: the building blocks of model families, as numpy functions.

use numpy::ndarray::{Array3, Array4};
use numpy::{Element, IntoPyArray};
use pyo3::prelude::*;

use super::edge::run;
use super::errors::to_python;
use super::pixels::HwcArray;
use crate::common::transforms;
use crate::error::CoreError;

/// `(pixel * (1 / 255) - mean) / std` of an HWC uint8 array, in float32, same shape.
#[pyfunction]
#[pyo3(signature = (arr, mean, std))]
fn normalize_rgb_f32<'py>(
    py: Python<'py>,
    arr: HwcArray<'py, u8>,
    mean: [f32; 3],
    std: [f32; 3],
) -> PyResult<Bound<'py, PyAny>> {
    let pixels = arr.rgb()?;
    let values = pixels.values()?;
    let out = run(py, || {
        let mut out = vec![0.0; values.len()];
        transforms::normalize_rgb_f32(values, mean, std, &mut out)?;
        Ok(out)
    })?;
    shaped3(py, out, (pixels.height(), pixels.width(), 3))
}

/// Pads an HWC uint8 or float32 array with `fill` at the bottom and on the right to whole patches.
#[pyfunction]
#[pyo3(signature = (arr, patch_size, fill = 0.0))]
fn pad_to_grid<'py>(
    py: Python<'py>,
    arr: Image<'py>,
    patch_size: usize,
    fill: f64,
) -> PyResult<Bound<'py, PyAny>> {
    match arr {
        Image::Bytes(arr) => {
            if !(0.0..=255.0).contains(&fill) || fill.fract() != 0.0 {
                return Err(to_python(CoreError::argument(format!(
                    "fill is {fill}; a uint8 image takes a whole number from 0 to 255"
                ))));
            }
            pad(py, &arr, patch_size, fill as u8)
        }
        Image::Floats(arr) => pad(py, &arr, patch_size, fill as f32),
    }
}

fn pad<'py, T: Element + Copy>(
    py: Python<'py>,
    arr: &HwcArray<'py, T>,
    patch_size: usize,
    fill: T,
) -> PyResult<Bound<'py, PyAny>> {
    let image = arr.row_major()?;
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    let values = image.values()?;
    let (padded, height, width) =
        run(py, || transforms::pad_to_grid(values, height, width, channels, patch_size, fill))?;
    shaped3(py, padded, (height, width, channels))
}

/// Cuts an HWC uint8 or float32 array of whole patches into `[patches, patch_size, patch_size, channels]`.
#[pyfunction]
#[pyo3(signature = (arr, patch_size))]
fn extract_patches_hwc<'py>(
    py: Python<'py>,
    arr: Image<'py>,
    patch_size: usize,
) -> PyResult<Bound<'py, PyAny>> {
    match arr {
        Image::Bytes(arr) => extract(py, &arr, patch_size),
        Image::Floats(arr) => extract(py, &arr, patch_size),
    }
}

fn extract<'py, T: Element + Copy>(
    py: Python<'py>,
    arr: &HwcArray<'py, T>,
    patch_size: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let image = arr.row_major()?;
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    let values = image.values()?;
    let (patches, count) = run(py, || {
        let (rows, columns) = transforms::patch_grid(height, width, patch_size)?;
        let patches = transforms::extract_patches_hwc(values, height, width, channels, patch_size)?;
        Ok((patches, rows * columns))
    })?;
    let array = Array4::from_shape_vec((count, patch_size, patch_size, channels), patches);
    let array = array.map_err(|error| to_python(CoreError::Internal(error.to_string())))?;
    Ok(array.into_pyarray(py).into_any())
}

/// `(rows, columns)` of the grid of patches that covers `height` by `width` pixels.
#[pyfunction]
#[pyo3(signature = (height, width, patch_size))]
fn patch_grid(height: usize, width: usize, patch_size: usize) -> PyResult<(usize, usize)> {
    transforms::patch_grid(height, width, patch_size).map_err(to_python)
}

enum Image<'py> {
    Bytes(HwcArray<'py, u8>),
    Floats(HwcArray<'py, f32>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Image<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<HwcArray<'py, f32>>() {
            Ok(array) => Ok(Self::Floats(array)),
            Err(_) => Ok(Self::Bytes(object.extract()?)),
        }
    }
}

fn shaped3<T: Element>(
    py: Python<'_>,
    values: Vec<T>,
    shape: (usize, usize, usize),
) -> PyResult<Bound<'_, PyAny>> {
    let array = Array3::from_shape_vec(shape, values);
    let array = array.map_err(|error| to_python(CoreError::Internal(error.to_string())))?;
    Ok(array.into_pyarray(py).into_any())
}

/// Adds the functions to the module.
///
/// # Errors
/// What Python raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(normalize_rgb_f32, module)?)?;
    module.add_function(wrap_pyfunction!(pad_to_grid, module)?)?;
    module.add_function(wrap_pyfunction!(extract_patches_hwc, module)?)?;
    module.add_function(wrap_pyfunction!(patch_grid, module)?)
}
