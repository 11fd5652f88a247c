//! `_core.qwen_vl`: the published functions, with the published arguments and results.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyAny;
use rayon::prelude::*;

use crate::common::decode::Picture;
use crate::common::hash::blake3_u64;
use crate::common::limits::Limits;
use crate::common::memory::Buffer;
use crate::common::{base64, threads};
use crate::error::{CoreError, Result};
use crate::families::qwen_vl;
use crate::finish::finished_bytes;
use crate::pipeline;
use crate::processor::{Input, Processor};
use crate::python::array::flat_array;
use crate::python::edge::run;
use crate::python::input::Borrowed;
use crate::recipe::checkpoint::Checkpoint;
use crate::recipe::mrope::{self, ImageSpan, Positions};
use crate::recipe::{Declared, Plan, Request, size};
use crate::stage_times::StageTimes;
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
static PUBLISHED: Mutex<Vec<(String, Arc<Published>)>> = Mutex::new(Vec::new());
const MOST_PUBLISHED: usize = 8;
const LONGEST_SPEC_BYTES: usize = 16 << 10;

struct Published {
    processor: Processor,
    merge: usize,
    placeholder: Option<i64>,
}

impl Published {
    // The published functions hold all temporal copies, whatever the spec says.
    fn new(spec_json: &str) -> Result<Self> {
        let mut fields = Checkpoint::parse(qwen_vl::SPEC.name, spec_json)?;
        let placeholder = fields.take("image_token_id").and_then(|id| id.as_i64());
        let family = qwen_vl::read(&mut fields)?;
        fields.refuse_the_rest()?;
        let merge = family.merge_size;
        let declared = Declared::new(qwen_vl::QwenVl { expand_temporal: true, ..family })?;
        Ok(Self { processor: Processor::new(qwen_vl::SPEC.name, declared), merge, placeholder })
    }
}

fn published(spec_json: &str) -> Result<Arc<Published>> {
    // Not waited for: a fork may have left it locked for ever.
    let built = PUBLISHED.try_lock().ok().and_then(|built| {
        built.iter().find(|(spec, _)| spec == spec_json).map(|(_, published)| Arc::clone(published))
    });
    if let Some(published) = built {
        return Ok(published);
    }
    let published = Arc::new(Published::new(spec_json)?);
    if let Ok(mut built) = PUBLISHED.try_lock()
        && spec_json.len() <= LONGEST_SPEC_BYTES
    {
        if built.len() >= MOST_PUBLISHED {
            built.remove(0);
        }
        built.push((spec_json.to_owned(), Arc::clone(&published)));
    }
    Ok(published)
}

/// An encoded image: bytes, or text that is a `data:` URL or base64.
#[derive(FromPyObject)]
enum Source {
    Text(String),
    Bytes(Borrowed),
}

impl Source {
    fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes.bytes())),
            Self::Text(text) => Ok(Cow::Owned(base64::inline_bytes(text)?)),
        }
    }
}

// What the images become, and all of it one after the other.
fn process(processor: &Processor, datas: &[&[u8]]) -> Result<(Vec<Plan>, Buffer)> {
    let (limits, transport) = (Limits::default(), Transport::Float32);
    let pictures = datas.iter().map(|data| Picture::open(data, &limits)).collect::<Result<Vec<_>>>()?;
    let plans = pictures.iter().map(|picture| {
        let plan = processor.plan(Input::Encoded(picture).source(), &Request::default())?;
        pipeline::admit(&plan, transport, &limits)?;
        Ok(plan)
    });
    let plans = plans.collect::<Result<Vec<_>>>()?;
    let sizes_bytes = plans.iter().map(|plan| finished_bytes(plan, transport)).collect::<Result<Vec<_>>>()?;
    let mut features = Buffer::take(sizes_bytes.iter().sum())?;
    let mut rest = features.bytes_mut();
    let mut works = Vec::with_capacity(plans.len());
    for ((picture, plan), size_bytes) in pictures.iter().zip(&plans).zip(sizes_bytes) {
        let (out, behind) = rest.split_at_mut(size_bytes);
        works.push((picture, plan, out));
        rest = behind;
    }
    threads::pool().install(|| {
        works.into_par_iter().try_for_each(|(picture, plan, out)| {
            let (input, mut times) = (Input::Encoded(picture), StageTimes::default());
            processor.run(input, plan, transport, &mut times, vec![out]).map(drop)
        })
    })?;
    Ok((plans, features))
}

/// Preprocesses one encoded image: `(flat float32 values, (t, rows, columns))`.
#[pyfunction]
fn preprocess<'py>(py: Python<'py>, data: Borrowed, spec_json: &str) -> PyResult<(Bound<'py, PyAny>, Grid)> {
    let (plans, features) = run(py, || process(&published(spec_json)?.processor, &[data.bytes()]))?;
    let grid = plans.first().map_or([0; 3], |plan| plan.grid);
    Ok((flat_array::<f32>(py, features)?, grid.into()))
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
    let (ids, features, plans, hashes, ranges, positions) = run(py, || {
        let published = published(spec_json)?;
        let Published { processor, merge, placeholder } = &*published;
        let placeholder = placeholder.ok_or_else(|| {
            CoreError::argument("the spec needs image_token_id, the placeholder in input_ids")
        })?;
        // Checked before any image is decoded.
        mrope::expand_placeholders(&input_ids, placeholder, &vec![1; images.len()])?;
        let pool = threads::pool();
        let datas = pool.install(|| images.par_iter().map(Source::bytes).collect::<Result<Vec<_>>>())?;
        let datas: Vec<&[u8]> = datas.iter().map(|data| &**data).collect();
        let (plans, features) = process(processor, &datas)?;
        let hashes = pool.install(|| datas.par_iter().map(|data| blake3_u64(data)).collect());
        let tokens: Vec<usize> = plans.iter().map(|plan| plan.num_tokens).collect();
        let (ids, ranges) = mrope::expand_placeholders(&input_ids, placeholder, &tokens)?;
        let spans: Vec<ImageSpan> = ranges
            .iter()
            .zip(&plans)
            .map(|(tokens, plan)| ImageSpan { tokens: tokens.clone(), grid: plan.grid })
            .collect();
        let positions = mrope::image_only(ids.len(), &spans, *merge)?;
        Ok((ids, features, plans, hashes, ranges, positions))
    })?;
    let grids = plans.iter().map(|plan| plan.grid.into()).collect();
    let offsets = ranges.iter().map(inclusive).collect();
    let (positions, delta) = positions_array(py, &positions)?;
    Ok((ids, flat_array::<f32>(py, features)?, grids, hashes, offsets, positions, delta))
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
    run(py, || size::smart_resize(height, width, factor, min_pixels, max_pixels))
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
