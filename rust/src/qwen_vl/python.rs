//! `_core.qwen_vl`: the published functions, with the published arguments and results.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyAny;
use rayon::prelude::*;

use super::mrope::{self, ImageSpan, Positions};
use super::patchify::Layout;
use super::{QwenVlProcessor, checkpoint, smart_resize};
use crate::common::decode::{self, RgbImage};
use crate::common::hash::blake3_u64;
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::common::{base64, threads};
use crate::error::{CoreError, Result};
use crate::pipeline::{self, StageTimes};
use crate::python::array::flat_array;
use crate::python::edge::run;
use crate::python::input::Borrowed;
use crate::registry::{ImageProcessor, parse_parameters};
use crate::tensor::Transport;

/// Temporal, rows, columns.
type Grid = (usize, usize, usize);
/// First and last token.
type Offsets = (usize, usize);

/// Expanded ids, flat float32 values, grids, hashes, offsets, flat positions and their delta.
type MultimodalRequest<'py> =
    (Vec<i64>, Bound<'py, PyAny>, Vec<Grid>, Vec<u64>, Vec<Offsets>, Bound<'py, PyAny>, i64);

// Building a processor tries its arithmetic with every byte, which takes as long as a thumbnail; and a server sends the
// same spec with each of its images. Least recently built first.
static PUBLISHED: Mutex<Vec<(String, Arc<QwenVlProcessor>)>> = Mutex::new(Vec::new());
const MOST_PUBLISHED: usize = 8;
const LONGEST_SPEC_BYTES: usize = 16 << 10;

// The published functions hold all temporal copies, whatever the spec says.
fn published_processor(spec_json: &str) -> Result<Arc<QwenVlProcessor>> {
    // Not waited for: a fork may have left it locked for ever.
    let built = PUBLISHED.try_lock().ok().and_then(|built| {
        built.iter().find(|(spec, _)| spec == spec_json).map(|(_, processor)| Arc::clone(processor))
    });
    if let Some(processor) = built {
        return Ok(processor);
    }
    let mut parameters = checkpoint::parse(spec_json)?;
    parameters.expand_temporal = true;
    let processor = Arc::new(QwenVlProcessor::new(parameters)?);
    if let Ok(mut built) = PUBLISHED.try_lock()
        && spec_json.len() <= LONGEST_SPEC_BYTES
    {
        if built.len() >= MOST_PUBLISHED {
            built.remove(0);
        }
        built.push((spec_json.to_owned(), Arc::clone(&processor)));
    }
    Ok(processor)
}

/// An encoded image: bytes, or text that is a `data:` URL or base64.
#[derive(FromPyObject)]
enum Source {
    Text(String),
    Bytes(Borrowed),
}

struct Decoded {
    image: RgbImage,
    layout: Layout,
}

impl Source {
    fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes.bytes())),
            Self::Text(text) => Ok(Cow::Owned(base64::inline_bytes(text)?)),
        }
    }
}

fn decode(processor: &QwenVlProcessor, data: &[u8]) -> Result<Decoded> {
    let limits = Limits::default();
    let image = decode::decode(data, &limits, |width, height| {
        pipeline::admit(&processor.plan(width, height, Transport::Float32)?, &limits)
    })?;
    let (height, width) = processor.resized(image.height, image.width)?;
    Ok(Decoded { layout: processor.layout(height, width), image })
}

fn process(processor: &QwenVlProcessor, datas: &[&[u8]]) -> Result<(Vec<Decoded>, Buffer)> {
    threads::pool().install(|| {
        let decoded: Vec<Decoded> =
            datas.par_iter().map(|data| decode(processor, data)).collect::<Result<_>>()?;
        let sizes_bytes: Vec<usize> =
            decoded.iter().map(|item| item.layout.values() * size_of::<f32>()).collect();
        let mut features = Buffer::take(sizes_bytes.iter().sum())?;
        let mut rest = features.bytes_mut();
        let mut parts = Vec::with_capacity(decoded.len());
        for &size_bytes in &sizes_bytes {
            let (part, behind) = rest.split_at_mut(size_bytes);
            parts.push(part);
            rest = behind;
        }
        decoded.par_iter().zip(parts).try_for_each(|(Decoded { image, .. }, out)| {
            let mut times = StageTimes::default();
            let rgb = image.pixels.bytes();
            processor.process_into(rgb, image.width, image.height, Transport::Float32, &mut times, out)
        })?;
        Ok((decoded, features))
    })
}

fn grid(layout: &Layout) -> Grid {
    (1, layout.rows(), layout.columns())
}

/// Preprocesses one encoded image: `(flat float32 values, (t, rows, columns))`.
#[pyfunction]
fn preprocess<'py>(py: Python<'py>, data: Borrowed, spec_json: &str) -> PyResult<(Bound<'py, PyAny>, Grid)> {
    let (decoded, features) = run(py, || process(&*published_processor(spec_json)?, &[data.bytes()]))?;
    let grid = decoded.first().map_or((0, 0, 0), |item| grid(&item.layout));
    Ok((flat_array::<f32>(py, features)?, grid))
}

/// Preprocesses a prompt with one placeholder for each image: `(ids, flat float32 values, grids, hashes,
/// offsets with both ends, flat positions [3 * len], delta)`.
#[pyfunction]
fn process_mm<'py>(
    py: Python<'py>,
    input_ids: Vec<i64>,
    images: Vec<Source>,
    spec_json: &str,
) -> PyResult<MultimodalRequest<'py>> {
    let (ids, features, decoded, hashes, ranges, positions) = run(py, || {
        let processor = published_processor(spec_json)?;
        let placeholder = placeholder(spec_json)?;
        let merge = processor.parameters().merge_size;
        // Checked before any image is decoded.
        mrope::expand_placeholders(&input_ids, placeholder, &vec![1; images.len()])?;
        let pool = threads::pool();
        let datas = pool.install(|| images.par_iter().map(Source::bytes).collect::<Result<Vec<_>>>())?;
        let datas: Vec<&[u8]> = datas.iter().map(|data| &**data).collect();
        let (decoded, features) = process(&processor, &datas)?;
        let hashes = pool.install(|| datas.par_iter().map(|data| blake3_u64(data)).collect());
        let grids: Vec<[usize; 3]> = decoded.iter().map(|item| grid(&item.layout).into()).collect();
        let tokens = grids.iter().map(|&grid| mrope::num_tokens(grid, merge)).collect::<Result<Vec<_>>>()?;
        let (ids, ranges) = mrope::expand_placeholders(&input_ids, placeholder, &tokens)?;
        let spans: Vec<ImageSpan> = ranges
            .iter()
            .zip(grids)
            .map(|(tokens, grid)| ImageSpan { tokens: tokens.clone(), grid })
            .collect();
        let positions = mrope::image_only(ids.len(), &spans, merge)?;
        Ok((ids, features, decoded, hashes, ranges, positions))
    })?;
    let grids = decoded.iter().map(|item| grid(&item.layout)).collect();
    let offsets = ranges.iter().map(inclusive).collect();
    let (positions, delta) = positions_array(py, &positions)?;
    Ok((ids, flat_array::<f32>(py, features)?, grids, hashes, offsets, positions, delta))
}

fn placeholder(spec_json: &str) -> Result<i64> {
    parse_parameters::<serde_json::Map<String, serde_json::Value>>("qwen_vl", spec_json)?
        .get("image_token_id")
        .and_then(serde_json::Value::as_i64)
        .ok_or_else(|| CoreError::argument("the spec needs image_token_id, the placeholder in input_ids"))
}

// Ranges of an image are never empty.
fn inclusive(range: &Range<usize>) -> Offsets {
    (range.start, range.end.saturating_sub(1))
}

fn positions_array<'py>(py: Python<'py>, positions: &Positions) -> PyResult<(Bound<'py, PyAny>, i64)> {
    let bytes: &[u8] = bytemuck::cast_slice(&positions.values);
    let mut buffer = Buffer::take(bytes.len()).map_err(crate::python::errors::to_python)?;
    buffer.bytes_mut().copy_from_slice(bytes);
    Ok((flat_array::<i64>(py, buffer)?, positions.delta))
}

/// `(height, width)` after resizing.
#[pyfunction]
fn smart_resize_py(
    py: Python<'_>,
    height: usize,
    width: usize,
    factor: usize,
    min_pixels: u64,
    max_pixels: u64,
) -> PyResult<(usize, usize)> {
    run(py, || smart_resize::smart_resize(height, width, factor, min_pixels, max_pixels))
}

/// Rotary positions of a prompt of `input_len` tokens with still images at `items`, each `(first token, last
/// token, t, rows, columns)`: `(flat positions [3 * input_len], delta)`.
#[pyfunction]
fn mrope_image_only_py(
    py: Python<'_>,
    input_len: usize,
    items: Vec<(usize, usize, usize, usize, usize)>,
    merge_size: usize,
) -> PyResult<(Bound<'_, PyAny>, i64)> {
    let positions = run(py, || {
        let spans: Vec<ImageSpan> = items
            .into_iter()
            .map(|(first, last, time, rows, columns)| ImageSpan {
                tokens: first..last.saturating_add(1),
                grid: [time, rows, columns],
            })
            .collect();
        mrope::image_only(input_len, &spans, merge_size)
    })?;
    positions_array(py, &positions)
}

/// Replaces each placeholder by as many as its image has tokens: `(ids, offsets with both ends)`.
#[pyfunction]
fn expand_placeholders(
    py: Python<'_>,
    input_ids: Vec<i64>,
    image_token_id: i64,
    num_tokens: Vec<usize>,
) -> PyResult<(Vec<i64>, Vec<Offsets>)> {
    let (ids, ranges) = run(py, || mrope::expand_placeholders(&input_ids, image_token_id, &num_tokens))?;
    Ok((ids, ranges.iter().map(inclusive).collect()))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(preprocess, module)?)?;
    module.add_function(wrap_pyfunction!(process_mm, module)?)?;
    module.add_function(wrap_pyfunction!(smart_resize_py, module)?)?;
    module.add_function(wrap_pyfunction!(mrope_image_only_py, module)?)?;
    module.add_function(wrap_pyfunction!(expand_placeholders, module)?)
}
