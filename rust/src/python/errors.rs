//! A Python exception for each variant of [`CoreError`].

use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::error::CoreError;

struct Exceptions {
    preprocess_error: Py<PyType>,
    input_error: Py<PyType>,
    decode_error: Py<PyType>,
    unsupported_format: Py<PyType>,
    limit_exceeded: Py<PyType>,
    invalid_argument: Py<PyType>,
    internal_error: Py<PyType>,
}

static EXCEPTIONS: PyOnceLock<Exceptions> = PyOnceLock::new();

// `create_exception!` allows one base only; callers of the published API catch ValueError, callers of ours
// the common base, so these have two.
fn exceptions(py: Python<'_>) -> PyResult<&Exceptions> {
    EXCEPTIONS.get_or_try_init(py, || {
        let new = |name: &str, code: &str, doc: &str, bases: Bound<'_, PyTuple>| -> PyResult<Py<PyType>> {
            let members = PyDict::new(py);
            members.set_item("__module__", "sglang_mm_ray._core")?;
            members.set_item("__doc__", doc)?;
            members.set_item("code", code)?;
            members.set_item("retriable", false)?;
            let class = py.get_type::<PyType>().call1((name, bases, members))?;
            Ok(class.cast_into::<PyType>()?.unbind())
        };
        let preprocess_error = new(
            "PreprocessError",
            "preprocess_error",
            "Base of every error of this package.",
            PyTuple::new(py, [py.get_type::<PyException>()])?,
        )?;
        let base = preprocess_error.bind(py);
        let input_error = new(
            "InputError",
            "input_error",
            "The input is at fault; the same input will fail again.",
            PyTuple::new(py, [base, &py.get_type::<PyValueError>()])?,
        )?;
        let input = || PyTuple::new(py, [input_error.bind(py)]);
        let decode_error = new(
            "DecodeError",
            "decode_error",
            "The file is broken, or is no image. `format` names what it claims to be.",
            input()?,
        )?;
        Ok(Exceptions {
            unsupported_format: new(
                "UnsupportedFormat",
                "unsupported_format",
                "No native decoder handles the format, which `format` names.",
                PyTuple::new(py, [decode_error.bind(py)])?,
            )?,
            limit_exceeded: new(
                "LimitExceeded",
                "limit_exceeded",
                "The input is over a limit: `what`, its `value` and the `limit`.",
                input()?,
            )?,
            invalid_argument: new(
                "InvalidArgument",
                "invalid_argument",
                "The caller passed what cannot work.",
                input()?,
            )?,
            internal_error: new(
                "InternalError",
                "internal_error",
                "A fault of the core itself.",
                PyTuple::new(py, [base, &py.get_type::<PyRuntimeError>()])?,
            )?,
            preprocess_error,
            input_error,
            decode_error,
        })
    })
}

/// Converts an error, with its fields as attributes.
pub fn to_python(error: CoreError) -> PyErr {
    Python::attach(|py| {
        let exceptions = match exceptions(py) {
            Ok(exceptions) => exceptions,
            Err(failure) => return failure,
        };
        let kind = match &error {
            CoreError::Decode { .. } => &exceptions.decode_error,
            CoreError::UnsupportedFormat { .. } => &exceptions.unsupported_format,
            CoreError::LimitExceeded { .. } => &exceptions.limit_exceeded,
            CoreError::InvalidArgument(_) => &exceptions.invalid_argument,
            CoreError::Internal(_) => &exceptions.internal_error,
        };
        let exception = PyErr::from_type(kind.bind(py).clone(), error.to_string());
        let value = exception.value(py);
        let set = match &error {
            CoreError::Decode { format, .. } | CoreError::UnsupportedFormat { format } => {
                value.setattr("format", *format)
            }
            CoreError::LimitExceeded { what, value: found, limit } => value
                .setattr("what", *what)
                .and_then(|()| value.setattr("value", *found))
                .and_then(|()| value.setattr("limit", *limit)),
            CoreError::InvalidArgument(_) | CoreError::Internal(_) => Ok(()),
        };
        set.err().unwrap_or(exception)
    })
}

/// Adds the exceptions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let exceptions = exceptions(module.py())?;
    for (name, class) in [
        ("PreprocessError", &exceptions.preprocess_error),
        ("InputError", &exceptions.input_error),
        ("DecodeError", &exceptions.decode_error),
        ("UnsupportedFormat", &exceptions.unsupported_format),
        ("LimitExceeded", &exceptions.limit_exceeded),
        ("InvalidArgument", &exceptions.invalid_argument),
        ("InternalError", &exceptions.internal_error),
    ] {
        module.add(name, class)?;
    }
    Ok(())
}
