//! What every model does with an image: a plan from its size, then tensors from its pixels.

use std::time::Instant;

use crate::error::Result;
use crate::tensor::{Tensor, TensorSpec, Transport};

/// What an image of one size becomes, known from its header alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Width after resizing, in pixels.
    pub width: usize,
    /// Height after resizing, in pixels.
    pub height: usize,
    /// Patch grid: temporal, rows, columns.
    pub grid: [usize; 3],
    /// Placeholder tokens that stand for the image in the prompt.
    pub num_tokens: usize,
    /// The tensors that [`ImageProcessor::process`] makes.
    pub tensors: Vec<TensorSpec>,
}

/// A family with its parameters fixed. Pure: equal input gives equal output on every machine.
pub trait ImageProcessor: Send + Sync {
    /// Name of the family.
    fn family(&self) -> &'static str;

    /// All parameters, defaults filled in, as canonical JSON: equal text means equal results.
    fn parameters_json(&self) -> String;

    /// Sizes of what an image of `width` by `height` pixels becomes.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the model forbids the size.
    fn plan(&self, width: usize, height: usize, transport: Transport) -> Result<Plan>;

    /// Turns `rgb` (`height * width * 3` bytes, HWC) into the planned tensors, and adds the seconds this took
    /// to `times.resize_s` and `times.patchify_s`.
    ///
    /// # Errors
    /// As [`Self::plan`].
    fn process(
        &self,
        rgb: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        times: &mut StageTimes,
    ) -> Result<Vec<Tensor>>;

    /// The tensors that [`Self::finish`] makes of pixels that are already resized to `width` by `height`, one
    /// after the other.
    ///
    /// # Errors
    /// As [`Self::finish`].
    fn finished(&self, width: usize, height: usize, transport: Transport) -> Result<Vec<TensorSpec>>;

    /// Late normalising: writes the patches of already resized pixels (the `uint8` transport) into `out`, bit
    /// for bit as [`Self::process`] would have.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`] if the sizes do not match or `transport` is `Uint8`.
    fn finish(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        out: &mut [u8],
    ) -> Result<()>;

    /// How many rows of pixels make a band, if the family can work by bands: the pixels of [`Self::process`] are the
    /// image resized to the planned size, or as it is where that is its own; they become one tensor by
    /// [`Self::finish`]; and `finish` of an image is `finish` of each band of rows, one after the other.
    ///
    /// Then decoding, resizing and finishing take turns in the cache. Without, as by default, each is a pass of its
    /// own over the whole image.
    fn band_rows(&self) -> Option<usize> {
        None
    }

    /// [`Self::finish`] of one band (of `height` rows) of an image that becomes `all_bytes` bytes, whose size may decide
    /// whether its output goes through the cache.
    ///
    /// # Errors
    /// As [`Self::finish`].
    fn finish_band(
        &self,
        pixels: &[u8],
        width: usize,
        height: usize,
        transport: Transport,
        all_bytes: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let _ = all_bytes;
        self.finish(pixels, width, height, transport, out)
    }
}

/// Seconds spent in each stage. Where stages take turns by bands, each has the sum of its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTimes {
    /// SHA-256 of the encoded bytes; beside the decoding if a thread is idle.
    pub hash_s: f64,
    /// Decoding to RGB.
    pub decode_s: f64,
    /// Resizing.
    pub resize_s: f64,
    /// Normalising and cutting into patches; beside the decoding if a thread is idle.
    pub patchify_s: f64,
}

/// Seconds that `work` takes, added to `total_s`.
pub fn timed<T>(total_s: &mut f64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *total_s += started.elapsed().as_secs_f64();
    result
}
