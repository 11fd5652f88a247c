//! The one executor: what a plan says becomes tensors, whatever the family.

use std::time::Instant;

use crate::common::bands::Bands;
use crate::common::decode::{Header, Picture};
use crate::common::memory::Buffer;
use crate::common::normalise::Normaliser;
use crate::common::resize;
use crate::error::{CoreError, Result};
use crate::recipe::{Arithmetic, Declared, Family, Load, Plan, Rect, Request, Source, View};
use crate::stage_times::{BandClock, StageTimes, timed};
use crate::tensor::{DType, Transport};
use crate::view_output::ViewOutput;

const CHANNELS: usize = 3;

/// A picture to preprocess.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// A file whose header was read.
    Encoded(&'a Picture<'a>),
    /// RGB pixels (`height * width * 3` bytes, HWC).
    Rgb {
        /// The pixels.
        pixels: &'a [u8],
        /// Width in pixels.
        width: usize,
        /// Height in pixels.
        height: usize,
    },
}

impl Input<'_> {
    /// What a plan may know of it.
    pub fn source(&self) -> Source {
        match self {
            Self::Encoded(Picture { header: Header { width, height, .. }, .. }) => {
                Source::opaque(*width, *height)
            }
            Self::Rgb { width, height, .. } => Source::opaque(*width, *height),
        }
    }
}

/// A family with its parameters fixed, ready to work.
pub struct Processor {
    name: &'static str,
    family: Box<dyn Family>,
    parameters_json: String,
    arithmetic: Arithmetic,
    normaliser: Normaliser,
}

impl Processor {
    /// Builds a processor; that tries the arithmetic with every byte.
    pub fn new(name: &'static str, declared: Declared) -> Self {
        let Declared { family, parameters_json } = declared;
        let arithmetic = family.arithmetic();
        Self { name, family, parameters_json, arithmetic, normaliser: arithmetic.normaliser() }
    }

    /// Name of the family.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All parameters, defaults filled in, as canonical JSON: equal text means equal results.
    pub fn parameters_json(&self) -> &str {
        &self.parameters_json
    }

    /// How the family's files are loaded.
    pub fn load(&self) -> Load {
        self.family.load()
    }

    /// What of a request changes results, as canonical JSON, or nothing: with the parameters, the identity of a result.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the request says what the family does not know.
    pub fn request_key(&self, request: &Request) -> Result<String> {
        request.key(self.family.request_facts())
    }

    /// What a picture becomes.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the model forbids the size, or the request says what the family does not know.
    pub fn plan(&self, source: Source, request: &Request) -> Result<Plan> {
        self.request_key(request)?;
        let plan = self.family.plan(source, request)?;
        plan.check(source)?;
        Ok(plan)
    }

    /// What a picture becomes that was resized already; only families that do not need the source's size know it.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn plan_of_resized(&self, resized: Source) -> Result<Plan> {
        let plan = self.family.plan_of_resized(resized)?;
        plan.check(resized)?;
        Ok(plan)
    }

    /// Makes the tensors of `plan` that hold pixels, in `out`, which has a place for each; adds the seconds of each stage
    /// to `times`. Returns the name of the decoder.
    ///
    /// # Errors
    /// Whatever is wrong with the file; [`CoreError::InvalidArgument`] if a length is wrong.
    pub fn run(
        &self,
        input: Input<'_>,
        plan: &Plan,
        transport: Transport,
        times: &mut StageTimes,
        out: Vec<&mut [u8]>,
    ) -> Result<&'static str> {
        let source = input.source();
        let mut views = places(plan, transport, out)?;
        let picture = match input {
            Input::Rgb { pixels, width, height } => {
                check_pixels(pixels, width, height)?;
                views.into_iter().try_for_each(|view| self.run_view(view, pixels, source, times))?;
                return Ok("rgb");
            }
            Input::Encoded(picture) => picture,
        };
        // A single view that keeps the size needs no picture as a whole.
        if let [ViewPlace { view, dtype, .. }] = &views[..]
            && *dtype != DType::U8
            && picture.comes_by_rows()
            && view.first.is_none()
            && view.resize().is_none()
            && is_whole(view.source, source.width, source.height)
            && is_whole(view.keep, view.width, view.height)
            && let Some(ViewPlace { view, dtype, out }) = views.pop()
        {
            let output = self.output(view, dtype, out)?;
            if let Some(rows) = output.band_rows() {
                return decode_by_bands(picture, &output, rows, times);
            }
            let image = timed(&mut times.decode_s, || picture.decode())?;
            timed(&mut times.patchify_s, || output.write_all(image.pixels.bytes(), image.width * CHANNELS));
            return Ok(image.decoder);
        }
        let image = timed(&mut times.decode_s, || picture.decode())?;
        let pixels = image.pixels.bytes();
        views.into_iter().try_for_each(|view| self.run_view(view, pixels, source, times))?;
        Ok(image.decoder)
    }

    /// Late normalising: makes of the kept pixels of all views (the `uint8` transport), one after the other, what
    /// [`Self::run`] would have made of the source.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the sizes do not match or `transport` is `Uint8`.
    pub fn finish(
        &self,
        plan: &Plan,
        pixels: &[u8],
        transport: Transport,
        out: Vec<&mut [u8]>,
    ) -> Result<()> {
        plan.normalised(transport)?;
        let values = plan.views.iter().map(View::kept_pixels).fold(0, usize::saturating_add);
        if pixels.len() != values.saturating_mul(CHANNELS) {
            return Err(CoreError::argument(format!(
                "{} bytes are not the {values} RGB pixels that this image was resized to",
                pixels.len()
            )));
        }
        let mut rest = pixels;
        for ViewPlace { view, dtype, out } in places(plan, transport, out)? {
            let (kept, behind) = rest.split_at(view.kept_pixels() * CHANNELS);
            self.output(view, dtype, out)?.write_all(kept, view.keep.width * CHANNELS);
            rest = behind;
        }
        Ok(())
    }

    fn output<'o>(&'o self, view: &View, dtype: DType, out: &'o mut [u8]) -> Result<ViewOutput<'o>> {
        ViewOutput::new(view, &self.normaliser, view.place.fill.background(&self.arithmetic), dtype, out)
    }

    fn run_view(
        &self,
        place: ViewPlace<'_, '_>,
        pixels: &[u8],
        source: Source,
        times: &mut StageTimes,
    ) -> Result<()> {
        let ViewPlace { view, dtype, out } = place;
        let cut = if is_whole(view.source, source.width, source.height) {
            None
        } else {
            let mut cut = Buffer::take(view.source.width * view.source.height * CHANNELS)?;
            copy_rect(pixels, source.width, view.source, cut.bytes_mut());
            Some(cut)
        };
        let pixels = cut.as_ref().map_or(pixels, Buffer::bytes);
        let first = match view.first_resize() {
            None => None,
            Some((size, filter, arithmetic)) => {
                let mut first = Buffer::take(size.out_width * size.out_height * CHANNELS)?;
                let out = first.bytes_mut();
                let resize = || resize::resize(pixels, CHANNELS, size, filter, arithmetic, out);
                timed(&mut times.resize_s, resize)?;
                Some(first)
            }
        };
        let pixels = first.as_ref().map_or(pixels, Buffer::bytes);
        let keeps_whole = is_whole(view.keep, view.width, view.height);
        let Some((size, filter, arithmetic)) = view.resize() else {
            return self.cut_view(view, dtype, pixels, times, out);
        };
        let resize_s = &mut times.resize_s;
        let resize = |out: &mut [u8]| resize::resize(pixels, CHANNELS, size, filter, arithmetic, out);
        if dtype == DType::U8 && keeps_whole {
            return timed(resize_s, || resize(out));
        }
        let output = if keeps_whole { Some(self.output(view, dtype, &mut *out)?) } else { None };
        let Some((output, rows)) = output.and_then(|output| output.band_rows().map(|rows| (output, rows)))
        else {
            let mut resized = Buffer::take(view.width * view.height * CHANNELS)?;
            timed(resize_s, || resize(resized.bytes_mut()))?;
            return self.cut_view(view, dtype, resized.bytes(), times, out);
        };
        let (clock, started) = (BandClock::default(), Instant::now());
        let finish = |first_row: usize, rows: &[u8]| {
            clock.count(|| output.write_band(first_row, rows));
            Ok(())
        };
        let bands = Bands { rows, finish: &finish };
        let worked_s = resize::resize_by_bands(pixels, CHANNELS, size, filter, arithmetic, bands)?;
        clock.count(|| output.write_empty_bands());
        // Threads work side by side, so each step has its share of the time that passed.
        let passed_s = started.elapsed().as_secs_f64();
        let share = (clock.seconds() / worked_s.max(f64::MIN_POSITIVE)).min(1.0);
        times.patchify_s += passed_s * share;
        times.resize_s += passed_s * (1.0 - share);
        Ok(())
    }

    // The values of a view, or its pixels, from all that was resized.
    fn cut_view(
        &self,
        view: &View,
        dtype: DType,
        resized: &[u8],
        times: &mut StageTimes,
        out: &mut [u8],
    ) -> Result<()> {
        let row_bytes = view.width * CHANNELS;
        if dtype == DType::U8 {
            timed(&mut times.resize_s, || copy_rect(resized, view.width, view.keep, out));
            return Ok(());
        }
        let start = view.keep.top * row_bytes + view.keep.left * CHANNELS;
        let output = self.output(view, dtype, out)?;
        timed(&mut times.patchify_s, || output.write_all(&resized[start..], row_bytes));
        Ok(())
    }
}

fn decode_by_bands(
    picture: &Picture<'_>,
    output: &ViewOutput<'_>,
    rows: usize,
    times: &mut StageTimes,
) -> Result<&'static str> {
    let (clock, started) = (BandClock::default(), Instant::now());
    let finish = |first_row: usize, rows: &[u8]| {
        clock.count(|| output.write_band(first_row, rows));
        Ok(())
    };
    let decoder = picture.decode_by_bands(&Bands { rows, finish: &finish })?;
    clock.count(|| output.write_empty_bands());
    times.patchify_s += clock.seconds();
    // Bands that another thread finished took none of this one's time.
    times.decode_s += (started.elapsed().as_secs_f64() - clock.seconds_here()).max(0.0);
    Ok(decoder)
}

struct ViewPlace<'p, 'o> {
    view: &'p View,
    dtype: DType,
    out: &'o mut [u8],
}

// The place of each view in the tensors. What the views leave of a tensor becomes zero.
fn places<'p, 'o>(
    plan: &'p Plan,
    transport: Transport,
    out: Vec<&'o mut [u8]>,
) -> Result<Vec<ViewPlace<'p, 'o>>> {
    let specs = plan.pixel_tensors(transport);
    let fits =
        out.len() == specs.len() && specs.iter().zip(&out).all(|(spec, out)| spec.size_bytes() == out.len());
    if !fits {
        let needed = specs.iter().map(|spec| spec.size_bytes()).fold(0, usize::saturating_add);
        return Err(CoreError::argument(format!(
            "the image needs {needed} bytes of output, not {}",
            out.iter().map(|out| out.len()).sum::<usize>()
        )));
    }
    let mut places: Vec<Option<ViewPlace>> = plan.views.iter().map(|_| None).collect();
    for (index, (spec, mut rest)) in specs.iter().zip(out).enumerate() {
        for (view, place) in plan.views.iter().zip(&mut places) {
            let values = match transport {
                Transport::Uint8 => view.kept_pixels() * CHANNELS,
                _ if view.tensor == index => view.values(),
                _ => continue,
            };
            let (out, behind);
            (out, rest) = rest.split_at_mut(values * spec.dtype.size_bytes());
            let zeros = if transport == Transport::Uint8 { 0 } else { view.zeros_behind };
            (behind, rest) = rest.split_at_mut(zeros * spec.dtype.size_bytes());
            behind.fill(0);
            *place = Some(ViewPlace { view, dtype: spec.dtype, out });
        }
        rest.fill(0);
    }
    Ok(places.into_iter().flatten().collect())
}

fn is_whole(rect: Rect, width: usize, height: usize) -> bool {
    rect == Rect::whole(width, height)
}

fn check_pixels(pixels: &[u8], width: usize, height: usize) -> Result<()> {
    let len = width.checked_mul(height).and_then(|len| len.checked_mul(CHANNELS));
    if pixels.is_empty() || Some(pixels.len()) != len {
        return Err(CoreError::argument(format!(
            "{} bytes are not {width} x {height} RGB pixels",
            pixels.len()
        )));
    }
    Ok(())
}

fn copy_rect(pixels: &[u8], width: usize, rect: Rect, out: &mut [u8]) {
    let rows = pixels.chunks_exact(width * CHANNELS).skip(rect.top);
    for (row, out) in rows.zip(out.chunks_exact_mut(rect.width * CHANNELS)) {
        out.copy_from_slice(&row[rect.left * CHANNELS..][..rect.width * CHANNELS]);
    }
}

#[cfg(test)]
mod tests;
