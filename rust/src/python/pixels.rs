//! HWC uint8 arrays from Python, of any strides.

use numpy::ndarray::{CowArray, Ix3};
use numpy::{
    Element, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray3, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::errors::to_python;
use crate::error::CoreError;

/// A three-dimensional numpy array that Rust reads in place.
pub struct HwcArray<'py, T: Element> {
    array: PyReadonlyArray3<'py, T>,
}

/// An HWC array as the core wants it: row-major and contiguous, copied only if it was not.
pub struct Hwc<'a, T> {
    values: CowArray<'a, T, Ix3>,
}

impl<T: Element> HwcArray<'_, T> {
    /// The array in row-major order.
    ///
    /// # Errors
    /// `InvalidArgument` if it is in another order, and a copy does not fit into memory.
    pub fn row_major(&self) -> PyResult<Hwc<'_, T>>
    where
        T: Clone,
    {
        let view = self.array.as_array();
        if view.is_standard_layout() {
            return Ok(Hwc { values: view.into() });
        }
        // ndarray ends the process where memory does not reach, which a broadcast array asks for with ease.
        Vec::<T>::new().try_reserve_exact(view.len()).map_err(|_| {
            to_python(CoreError::argument("a copy of the array in row-major order does not fit into memory"))
        })?;
        Ok(Hwc { values: view.as_standard_layout().into_owned().into() })
    }
}

impl HwcArray<'_, u8> {
    /// The array in row-major order, if it has the 3 channels of RGB.
    ///
    /// # Errors
    /// `InvalidArgument` that names the channel count.
    pub fn rgb(&self) -> PyResult<Hwc<'_, u8>> {
        let pixels = self.row_major()?;
        match pixels.channels() {
            3 => Ok(pixels),
            channels => Err(no_rgb(channels)),
        }
    }

    /// Width and height, if it has the 3 channels of RGB.
    ///
    /// # Errors
    /// As [`Self::rgb`].
    pub fn rgb_size(&self) -> PyResult<(usize, usize)> {
        match *self.array.shape() {
            [height, width, 3] => Ok((width, height)),
            ref shape => Err(no_rgb(shape.last().copied().unwrap_or(0))),
        }
    }
}

fn no_rgb(channels: usize) -> PyErr {
    let reason = format!("expected HWC RGB array with 3 channels, got {channels}");
    to_python(CoreError::argument(reason))
}

impl<T> Hwc<'_, T> {
    /// All values, row by row.
    ///
    /// # Errors
    /// `InternalError`, never in practice.
    pub fn values(&self) -> PyResult<&[T]> {
        self.values
            .as_slice()
            .ok_or_else(|| to_python(CoreError::Internal("a row-major array has a slice".to_owned())))
    }

    /// First axis.
    pub fn height(&self) -> usize {
        self.values.dim().0
    }

    /// Second axis.
    pub fn width(&self) -> usize {
        self.values.dim().1
    }

    /// Third axis.
    pub fn channels(&self) -> usize {
        self.values.dim().2
    }
}

// Whether all values lie at multiples of their own size: no view of Rust's can have others.
fn is_addressable<T: Element>(array: &PyReadonlyArray3<'_, T>) -> bool {
    let whole = |stride: isize| stride.unsigned_abs().is_multiple_of(size_of::<T>());
    array.strides().iter().all(|&stride| whole(stride)) && array.data().is_aligned()
}

impl<'a, 'py, T: Element> FromPyObject<'a, 'py> for HwcArray<'py, T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.extract::<PyReadonlyArray3<'py, T>>() {
            if is_addressable(&array) {
                return Ok(Self { array });
            }
            // Values within records, or at any address: numpy reads them where Rust must not.
            let copy = object.call_method1("copy", ("C",))?;
            return Ok(Self { array: copy.extract()? });
        }
        let found = match object.cast::<PyUntypedArray>() {
            Ok(array) => format!("a {} array of {} dimensions", array.dtype(), array.ndim()),
            Err(_) => object.get_type().name()?.to_string(),
        };
        let wanted = T::get_dtype(object.py()).typeobj().name()?.to_string();
        Err(PyTypeError::new_err(format!(
            "expected a numpy array of shape (height, width, channels) and dtype {wanted}, not {found}"
        )))
    }
}
