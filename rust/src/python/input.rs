//! Borrowing bytes from Python objects without a copy.
#![allow(unsafe_code)]

use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// Bytes of a Python object, kept alive and in place while this lives.
///
/// Accepts `bytes` and whatever exports a buffer of bytes: `bytearray`, `memoryview`, numpy arrays. The
/// stable ABI of Python 3.10 has no buffer protocol, so all but `bytes` go through `numpy.frombuffer`, which
/// holds the export (a `bytearray` cannot be resized meanwhile). What is not bytes side by side in memory is
/// copied, as the published functions do: strided buffers, and lists, tuples and arrays of integers.
pub struct Borrowed {
    // Never read, but its export keeps `data` valid.
    _owner: Py<PyAny>,
    data: *const u8,
    len: usize,
}

// SAFETY: the pointer is only read, and the owner is only dropped (pyo3 defers that to a thread with the GIL).
unsafe impl Send for Borrowed {}
// SAFETY: as above; shared reads of bytes need no synchronisation.
unsafe impl Sync for Borrowed {}

impl Borrowed {
    /// The bytes. As with every buffer handed to native code, the caller does not write to it meanwhile.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `data` points to `len` bytes that `_owner` keeps alive and in place.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    fn of_bytes(bytes: Bound<'_, PyBytes>) -> Self {
        let data = bytes.as_bytes();
        Self { data: data.as_ptr(), len: data.len(), _owner: bytes.into_any().unbind() }
    }

    fn of_integers(object: Borrowed_<'_, '_>) -> PyResult<Self> {
        Ok(Self::of_bytes(PyBytes::new(object.py(), &object.extract::<Vec<u8>>()?)))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Borrowed {
    type Error = PyErr;

    fn extract(object: Borrowed_<'a, 'py>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::of_bytes(bytes.to_owned()));
        }
        let py = object.py();
        let Ok(view) = py.import("builtins")?.getattr("memoryview")?.call1((object,)) else {
            let is_listed = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
            return if is_listed { Self::of_integers(object) } else { Err(not_bytes(&object)) };
        };
        // An item of another size is a number, or a pointer, whose bytes in memory mean nothing.
        if view.getattr("itemsize")?.extract::<usize>()? != 1
            || view.getattr("ndim")?.extract::<usize>()? == 0
        {
            return Self::of_integers(object);
        }
        // `frombuffer` refuses empty buffers.
        if view.getattr("nbytes")?.extract::<usize>()? == 0 {
            return Ok(Self { data: std::ptr::null(), len: 0, _owner: object.to_owned().unbind() });
        }
        if !view.getattr("c_contiguous")?.extract::<bool>()? {
            return Ok(Self::of_bytes(view.call_method0("tobytes")?.cast_into::<PyBytes>()?));
        }
        let numpy = py.import("numpy")?;
        let array = numpy.call_method1("frombuffer", (view, numpy.getattr("uint8")?))?;
        let array = array.cast_into::<PyArray1<u8>>()?;
        let (data, len) = (array.data().cast_const(), array.len());
        Ok(Self { data, len, _owner: array.into_any().unbind() })
    }
}

type Borrowed_<'a, 'py> = pyo3::Borrowed<'a, 'py, PyAny>;

fn not_bytes(object: &Borrowed_<'_, '_>) -> PyErr {
    let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    pyo3::exceptions::PyTypeError::new_err(format!(
        "expected bytes, bytearray, memoryview or a numpy array of bytes, not {name}"
    ))
}
