//! `_core.processor(name)`: any family of the registry, by name.

use std::sync::Arc;

use numpy::{PyArray1, PyArrayMethods, PyReadwriteArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::array::tensor_array;
use super::edge::run;
use super::errors::to_python;
use super::input::Borrowed;
use super::pixels::HwcArray;
use crate::common::hash::{ContentDigest, content_digest, digest_u64};
use crate::common::limits::Limits;
use crate::common::threads;
use crate::error::CoreError;
use crate::finish::{Pixels, finish_batch};
use crate::pipeline;
use crate::processor::{ImageProcessor, Plan};
use crate::registry::default_registry;
use crate::tensor::{TensorSpec, Transport};

/// Limits that hold before memory is taken.
#[pyclass(name = "Limits", frozen, from_py_object, module = "sglang_mm_ray._core")]
#[derive(Clone, Copy)]
pub struct PyLimits(Limits);

impl PyLimits {
    /// The limits as the core takes them.
    pub fn inner(self) -> Limits {
        self.0
    }
}

#[pymethods]
impl PyLimits {
    #[new]
    #[pyo3(signature = (*, max_input_bytes = None, max_pixels = None, max_patches = None))]
    fn new(max_input_bytes: Option<u64>, max_pixels: Option<u64>, max_patches: Option<u64>) -> Self {
        let default = Limits::default();
        Self(Limits {
            max_input_bytes: max_input_bytes.unwrap_or(default.max_input_bytes),
            max_pixels: max_pixels.unwrap_or(default.max_pixels),
            max_patches: max_patches.unwrap_or(default.max_patches),
        })
    }

    #[getter]
    fn max_input_bytes(&self) -> u64 {
        self.0.max_input_bytes
    }

    #[getter]
    fn max_pixels(&self) -> u64 {
        self.0.max_pixels
    }

    #[getter]
    fn max_patches(&self) -> u64 {
        self.0.max_patches
    }
}

/// A preprocessed image.
#[pyclass(name = "Processed", frozen, get_all, module = "sglang_mm_ray._core")]
pub struct PyProcessed {
    tensors: Py<PyDict>,
    dtypes: Py<PyDict>,
    height: usize,
    width: usize,
    grid: (usize, usize, usize),
    num_tokens: usize,
    digest: [u8; 32],
    content_hash: u64,
    decoder: &'static str,
    times: Py<PyDict>,
}

impl PyProcessed {
    fn new(py: Python<'_>, processed: pipeline::Processed) -> PyResult<Self> {
        let (tensors, dtypes, times) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
        for tensor in processed.tensors {
            let name = tensor.spec.name;
            dtypes.set_item(name, tensor.spec.dtype.name())?;
            tensors.set_item(name, tensor_array(py, tensor)?)?;
        }
        times.set_item("hash_s", processed.times.hash_s)?;
        times.set_item("decode_s", processed.times.decode_s)?;
        times.set_item("resize_s", processed.times.resize_s)?;
        times.set_item("patchify_s", processed.times.patchify_s)?;
        Ok(Self {
            tensors: tensors.unbind(),
            dtypes: dtypes.unbind(),
            height: processed.height,
            width: processed.width,
            grid: processed.grid.into(),
            num_tokens: processed.num_tokens,
            digest: processed.digest,
            content_hash: digest_u64(&processed.digest),
            decoder: processed.decoder,
            times: times.unbind(),
        })
    }
}

/// A model family with its parameters fixed.
#[pyclass(name = "Processor", frozen, module = "sglang_mm_ray._core")]
pub struct PyProcessor {
    inner: Arc<dyn ImageProcessor>,
}

#[pymethods]
impl PyProcessor {
    /// Name of the family.
    #[getter]
    fn name(&self) -> &'static str {
        self.inner.family()
    }

    /// All parameters as canonical JSON, defaults filled in.
    #[getter]
    fn parameters_json(&self) -> String {
        self.inner.parameters_json()
    }

    /// What an image of this size becomes.
    #[pyo3(signature = (width, height, transport = "bf16"))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        width: usize,
        height: usize,
        transport: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let plan = self.inner.plan(width, height, transport).map_err(to_python)?;
        plan_dict(py, &plan)
    }

    /// Preprocesses encoded images side by side: a `Processed` or an exception object for each. `digests`
    /// spares hashing what the caller has hashed.
    #[pyo3(signature = (datas, transport = "bf16", limits = None, digests = None))]
    fn preprocess_batch<'py>(
        &self,
        py: Python<'py>,
        datas: Vec<Borrowed>,
        transport: &str,
        limits: Option<PyLimits>,
        digests: Option<Vec<ContentDigest>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let limits = limits.map_or_else(Limits::default, |limits| limits.0);
        let slices: Vec<&[u8]> = datas.iter().map(Borrowed::bytes).collect();
        let digests = digests.unwrap_or_default();
        let results =
            run(py, || Ok(pipeline::preprocess_batch(&*self.inner, &slices, &digests, transport, &limits)))?;
        let list = PyList::empty(py);
        for result in results {
            match result {
                Ok(processed) => list.append(Bound::new(py, PyProcessed::new(py, processed)?)?)?,
                Err(error) => list.append(to_python(error).into_value(py))?,
            }
        }
        Ok(list)
    }

    /// Preprocesses an HWC uint8 array that is already RGB; `digest` is the identity of its source.
    #[pyo3(signature = (arr, transport = "bf16", limits = None, digest = None))]
    fn preprocess_rgb<'py>(
        &self,
        py: Python<'py>,
        arr: HwcArray<'py, u8>,
        transport: &str,
        limits: Option<PyLimits>,
        digest: Option<ContentDigest>,
    ) -> PyResult<PyProcessed> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let limits = limits.map_or_else(Limits::default, |limits| limits.0);
        let pixels = arr.rgb()?;
        let (height, width, pixels) = (pixels.height(), pixels.width(), pixels.values()?);
        let processed = run(py, || {
            let digest = digest.unwrap_or_else(|| content_digest(pixels));
            threads::pool().install(|| {
                pipeline::preprocess_rgb(&*self.inner, pixels, width, height, digest, transport, &limits)
            })
        })?;
        PyProcessed::new(py, processed)
    }

    /// The tensors that `finish` makes of pixels already resized to this size.
    #[pyo3(signature = (width, height, transport = "bf16"))]
    fn finished<'py>(
        &self,
        py: Python<'py>,
        width: usize,
        height: usize,
        transport: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        tensors_dict(py, &self.inner.finished(width, height, transport).map_err(to_python)?)
    }

    /// Late normalising: writes the patches of resized HWC pixels into a flat contiguous uint8 view of the output.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        pixels: HwcArray<'py, u8>,
        transport: &str,
        out: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let pixels = pixels.rgb()?;
        let (height, width, pixels) = (pixels.height(), pixels.width(), pixels.values()?);
        let mut out = writable(out)?;
        let out = contiguous(&mut out)?;
        run(py, || threads::pool().install(|| self.inner.finish(pixels, width, height, transport, out)))
    }

    /// Late normalising of many images side by side into one flat contiguous uint8 view, each at its offset in
    /// bytes, by default one after the other.
    #[pyo3(signature = (pixels, transport, out, offsets_bytes = None))]
    fn finish_batch<'py>(
        &self,
        py: Python<'py>,
        pixels: Vec<HwcArray<'py, u8>>,
        transport: &str,
        out: &Bound<'py, PyAny>,
        offsets_bytes: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let arrays = pixels.iter().map(HwcArray::rgb).collect::<PyResult<Vec<_>>>()?;
        let images = arrays
            .iter()
            .map(|array| Ok(Pixels { values: array.values()?, width: array.width(), height: array.height() }))
            .collect::<PyResult<Vec<_>>>()?;
        let mut out = writable(out)?;
        let out = contiguous(&mut out)?;
        run(py, || finish_batch(&*self.inner, &images, transport, out, offsets_bytes.as_deref()))
    }
}

fn writable<'py>(out: &Bound<'py, PyAny>) -> PyResult<PyReadwriteArray1<'py, u8>> {
    let out = out.cast::<PyArray1<u8>>().map_err(|_| {
        let found = out.cast::<PyUntypedArray>().map_or_else(
            |_| out.get_type().to_string(),
            |array| format!("a {} array of {} dimensions", array.dtype(), array.ndim()),
        );
        PyTypeError::new_err(format!("the output must be a flat uint8 view of its bytes, not {found}"))
    })?;
    out.try_readwrite().map_err(|_| {
        to_python(CoreError::argument("the output is read-only or already in use; pass a writable array"))
    })
}

fn contiguous<'a>(out: &'a mut PyReadwriteArray1<'_, u8>) -> PyResult<&'a mut [u8]> {
    out.as_slice_mut().map_err(|_| to_python(CoreError::argument("the output must be contiguous")))
}

fn tensors_dict<'py>(py: Python<'py>, tensors: &[TensorSpec]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for spec in tensors {
        dict.set_item(spec.name, (spec.dtype.name(), spec.shape.clone()))?;
    }
    Ok(dict)
}

fn plan_dict<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let tensors = tensors_dict(py, &plan.tensors)?;
    dict.set_item("width", plan.width)?;
    dict.set_item("height", plan.height)?;
    dict.set_item("grid", <(usize, usize, usize)>::from(plan.grid))?;
    dict.set_item("num_tokens", plan.num_tokens)?;
    dict.set_item("tensors", tensors)?;
    dict.set_item("size_bytes", plan.tensors.iter().map(TensorSpec::size_bytes).sum::<usize>())?;
    Ok(dict)
}

/// A processor of the named family; `parameters_json` is a JSON object of its parameters.
#[pyfunction]
#[pyo3(signature = (name, parameters_json = "{}"))]
fn processor(name: &str, parameters_json: &str) -> PyResult<PyProcessor> {
    let family = default_registry().get(name).map_err(to_python)?;
    Ok(PyProcessor { inner: family.configure(parameters_json).map_err(to_python)? })
}

/// Names of the families.
#[pyfunction]
fn processor_names() -> Vec<&'static str> {
    default_registry().names()
}

/// Adds the classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLimits>()?;
    module.add_class::<PyProcessed>()?;
    module.add_class::<PyProcessor>()?;
    module.add_function(wrap_pyfunction!(processor, module)?)?;
    module.add_function(wrap_pyfunction!(processor_names, module)?)
}
