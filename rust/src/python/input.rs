//! Borrowing bytes from Python objects without a copy.
#![allow(unsafe_code)]

use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::to_python;
use crate::error::CoreError;

/// Bytes of a Python object, kept alive and in place while this lives.
///
/// Accepts `bytes` and whatever exports a contiguous buffer: `bytearray`, `memoryview`, numpy arrays. The
/// stable ABI of Python 3.10 has no buffer protocol, so all but `bytes` go through `numpy.frombuffer`, which
/// holds the export (a `bytearray` cannot be resized meanwhile).
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
}

impl<'a, 'py> FromPyObject<'a, 'py> for Borrowed {
    type Error = PyErr;

    fn extract(object: Borrowed_<'a, 'py>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            let data = bytes.as_bytes();
            return Ok(Self { data: data.as_ptr(), len: data.len(), _owner: object.to_owned().unbind() });
        }
        let py = object.py();
        let numpy = py.import("numpy")?;
        // `frombuffer` refuses empty buffers, and objects without the protocol.
        let view =
            py.import("builtins")?.getattr("memoryview")?.call1((object,)).map_err(|_| not_bytes(&object))?;
        if view.getattr("nbytes")?.extract::<usize>()? == 0 {
            return Ok(Self { data: std::ptr::null(), len: 0, _owner: object.to_owned().unbind() });
        }
        if !view.getattr("c_contiguous")?.extract::<bool>()? {
            return Err(to_python(CoreError::argument(
                "the buffer is not contiguous; pass bytes(...) or numpy.ascontiguousarray(...) of it",
            )));
        }
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
