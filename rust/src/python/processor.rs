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
use super::limits::PyLimits;
use super::pixels::{Hwc, HwcArray};
use crate::common::hash::{ContentDigest, content_digest, digest_u64};
use crate::common::limits::Limits;
use crate::common::threads;
use crate::error::CoreError;
use crate::finish::{Resized, finish, finish_batch};
use crate::pipeline::{self, Job};
use crate::processor::Processor;
use crate::recipe::{Plan, Request, Source};
use crate::registry::default_registry;
use crate::tensor::{TensorSpec, Transport};

/// A preprocessed image.
#[pyclass(name = "Processed", frozen, get_all, module = "sglang_mm_ray._core")]
pub struct PyProcessed {
    tensors: Py<PyDict>,
    dtypes: Py<PyDict>,
    height: usize,
    width: usize,
    grid: (usize, usize, usize),
    num_tokens: usize,
    /// Width and height of the source, in pixels.
    source_size: (usize, usize),
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
            source_size: (processed.source.width, processed.source.height),
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
    inner: Arc<Processor>,
}

impl PyProcessor {
    fn plan_of(&self, source: (usize, usize), request: Option<&Bound<'_, PyDict>>) -> PyResult<Plan> {
        let (request, (width, height)) = (facts(request)?, source);
        self.inner.plan(Source::opaque(width, height), &request).map_err(to_python)
    }

    // Pixels of one image that were resized already, and what they become.
    fn resized<'py>(
        &self,
        pixels: &Bound<'py, PyAny>,
        source: Option<(usize, usize)>,
        request: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<(LatePixels<'py>, Plan)> {
        if let Some(source) = source {
            return Ok((LatePixels::Views(pixels.extract()?), self.plan_of(source, request)?));
        }
        let pixels: HwcArray<'py, u8> = pixels.extract()?;
        let (width, height) = pixels.rgb_size()?;
        let plan = self.inner.plan_of_resized(Source::opaque(width, height)).map_err(to_python)?;
        Ok((LatePixels::Image(pixels), plan))
    }
}

// The pixels of a single image of any strides, or those of all views of one, side by side.
enum LatePixels<'py> {
    Image(HwcArray<'py, u8>),
    Views(Borrowed),
}

enum LateBytes<'a> {
    Image(Hwc<'a, u8>),
    Views(&'a [u8]),
}

impl LatePixels<'_> {
    fn bytes(&self) -> PyResult<LateBytes<'_>> {
        match self {
            Self::Image(array) => Ok(LateBytes::Image(array.rgb()?)),
            Self::Views(bytes) => Ok(LateBytes::Views(bytes.bytes())),
        }
    }
}

impl LateBytes<'_> {
    fn values(&self) -> PyResult<&[u8]> {
        match self {
            Self::Image(pixels) => pixels.values(),
            Self::Views(bytes) => Ok(bytes),
        }
    }
}

#[pymethods]
impl PyProcessor {
    /// Name of the family.
    #[getter]
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    /// All parameters as canonical JSON, defaults filled in.
    #[getter]
    fn parameters_json(&self) -> &str {
        self.inner.parameters_json()
    }

    /// How files are loaded: `"rgb"` or `"upright"`.
    #[getter]
    fn load(&self) -> &'static str {
        self.inner.load().name()
    }

    /// What of a request's facts changes results, as canonical JSON; empty if nothing does.
    fn request_key(&self, request: &Bound<'_, PyDict>) -> PyResult<String> {
        self.inner.request_key(&facts(Some(request))?).map_err(to_python)
    }

    /// What an image of this size becomes.
    #[pyo3(signature = (width, height, transport = "bf16", *, request = None))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        width: usize,
        height: usize,
        transport: &str,
        request: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        plan_dict(py, &self.plan_of((width, height), request)?, transport)
    }

    /// Preprocesses encoded images side by side: a `Processed` or an exception object for each. `digests`
    /// spares hashing what the caller has hashed.
    #[pyo3(signature = (datas, transport = "bf16", limits = None, digests = None, *, request = None))]
    fn preprocess_batch<'py>(
        &self,
        py: Python<'py>,
        datas: Vec<Borrowed>,
        transport: &str,
        limits: Option<PyLimits>,
        digests: Option<Vec<ContentDigest>>,
        request: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let limits = limits.map_or_else(Limits::default, PyLimits::inner);
        let request = facts(request)?;
        let slices: Vec<&[u8]> = datas.iter().map(Borrowed::bytes).collect();
        let digests = digests.unwrap_or_default();
        let job = Job { processor: &self.inner, request: &request, transport, limits: &limits };
        let results = run(py, || Ok(pipeline::preprocess_batch(job, &slices, &digests)))?;
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
    #[pyo3(signature = (arr, transport = "bf16", limits = None, digest = None, *, request = None))]
    fn preprocess_rgb<'py>(
        &self,
        py: Python<'py>,
        arr: HwcArray<'py, u8>,
        transport: &str,
        limits: Option<PyLimits>,
        digest: Option<ContentDigest>,
        request: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<PyProcessed> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let limits = limits.map_or_else(Limits::default, PyLimits::inner);
        let request = facts(request)?;
        let pixels = arr.rgb()?;
        let (height, width, pixels) = (pixels.height(), pixels.width(), pixels.values()?);
        let job = Job { processor: &self.inner, request: &request, transport, limits: &limits };
        let processed = run(py, || {
            let digest = digest.unwrap_or_else(|| content_digest(pixels));
            threads::pool().install(|| job.preprocess_rgb(pixels, width, height, digest))
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
        let plan = self.inner.plan_of_resized(Source::opaque(width, height)).map_err(to_python)?;
        tensors_dict(py, &plan.normalised(transport).map_err(to_python)?)
    }

    /// Late normalising: writes the values of resized pixels into a flat contiguous uint8 view of the output. With
    /// `source`, `(width, height)` of the image, the pixels are those of all its views.
    #[pyo3(signature = (pixels, transport, out, *, source = None, request = None))]
    fn finish<'py>(
        &self,
        py: Python<'py>,
        pixels: &Bound<'py, PyAny>,
        transport: &str,
        out: &Bound<'py, PyAny>,
        source: Option<(usize, usize)>,
        request: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        let (pixels, plan) = self.resized(pixels, source, request)?;
        let pixels = pixels.bytes()?;
        let image = Resized { pixels: pixels.values()?, plan: &plan };
        let mut out = writable(out)?;
        let out = contiguous(&mut out)?;
        apart(out, image.pixels)?;
        run(py, || threads::pool().install(|| finish(&self.inner, image, transport, out)))
    }

    /// Late normalising of many images side by side into one flat contiguous uint8 view, each at its offset in
    /// bytes, by default one after the other.
    #[pyo3(signature = (pixels, transport, out, offsets_bytes = None, *, sources = None, request = None))]
    #[allow(clippy::too_many_arguments, reason = "Python names them")]
    fn finish_batch<'py>(
        &self,
        py: Python<'py>,
        pixels: Vec<Bound<'py, PyAny>>,
        transport: &str,
        out: &Bound<'py, PyAny>,
        offsets_bytes: Option<Vec<usize>>,
        sources: Option<Vec<(usize, usize)>>,
        request: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let transport = Transport::parse(transport).map_err(to_python)?;
        if let Some(sources) = sources.as_ref().filter(|sources| sources.len() != pixels.len()) {
            let reason = format!("{} sources for {} images", sources.len(), pixels.len());
            return Err(to_python(CoreError::argument(reason)));
        }
        let source = |at: usize| sources.as_ref().map(|sources| sources[at]);
        let images = pixels.iter().enumerate().map(|(at, pixels)| self.resized(pixels, source(at), request));
        let images = images.collect::<PyResult<Vec<_>>>()?;
        let bytes = images.iter().map(|(pixels, _)| pixels.bytes()).collect::<PyResult<Vec<_>>>()?;
        let images = bytes.iter().zip(&images);
        let images = images.map(|(bytes, (_, plan))| Ok(Resized { pixels: bytes.values()?, plan }));
        let images = images.collect::<PyResult<Vec<_>>>()?;
        let mut out = writable(out)?;
        let out = contiguous(&mut out)?;
        images.iter().try_for_each(|image| apart(out, image.pixels))?;
        run(py, || finish_batch(&self.inner, &images, transport, out, offsets_bytes.as_deref()))
    }
}

// The facts of a request, as Python's own JSON has them.
fn facts(request: Option<&Bound<'_, PyDict>>) -> PyResult<Request> {
    let Some(request) = request.filter(|request| !request.is_empty()) else { return Ok(Request::default()) };
    let json: String = request.py().import("json")?.call_method1("dumps", (request,))?.extract()?;
    Request::parse(&json).map_err(to_python)
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

// Two arrays of one memory may have nothing else in common, so that no borrow tells.
fn apart(out: &[u8], pixels: &[u8]) -> PyResult<()> {
    let (out, pixels) = (out.as_ptr_range(), pixels.as_ptr_range());
    if pixels.end <= out.start || out.end <= pixels.start {
        return Ok(());
    }
    Err(to_python(CoreError::argument("the output lies over the pixels; pass other memory")))
}

fn tensors_dict<'py>(py: Python<'py>, tensors: &[TensorSpec]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for spec in tensors {
        dict.set_item(spec.name, (spec.dtype.name(), spec.shape.clone()))?;
    }
    Ok(dict)
}

fn plan_dict<'py>(py: Python<'py>, plan: &Plan, transport: Transport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (specs, (width, height)) = (plan.specs(transport), plan.size());
    let tensors = tensors_dict(py, &specs)?;
    dict.set_item("width", width)?;
    dict.set_item("height", height)?;
    dict.set_item("grid", <(usize, usize, usize)>::from(plan.grid))?;
    dict.set_item("num_tokens", plan.num_tokens)?;
    dict.set_item("tensors", tensors)?;
    dict.set_item("size_bytes", specs.iter().map(TensorSpec::size_bytes).sum::<usize>())?;
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
