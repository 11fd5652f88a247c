//! libwebp: its container reader and its decoder.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use libwebp_sys as webp;

/// A parsed container.
pub struct Demuxer<'a> {
    demuxer: NonNull<webp::WebPDemuxer>,
    data: PhantomData<&'a [u8]>,
}

/// One frame, not yet decoded.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Columns of the canvas left of it.
    pub x: usize,
    /// Rows of the canvas above it.
    pub y: usize,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Its bitstream.
    pub fragment: &'a [u8],
}

impl<'a> Demuxer<'a> {
    /// Parses `data`, all of it there; `None` if the container or the head of its first bitstream is broken.
    pub fn new(data: &'a [u8]) -> Option<Self> {
        let mut features = MaybeUninit::uninit();
        // SAFETY: reads `data` and fills `features`.
        let status = unsafe { webp::WebPGetFeatures(data.as_ptr(), data.len(), features.as_mut_ptr()) };
        // The container reader alone would let more pass than Pillow does.
        if status != webp::VP8StatusCode::VP8_STATUS_OK {
            return None;
        }
        let view = webp::WebPData { bytes: data.as_ptr(), size: data.len() };
        let version = webp::WEBP_DEMUX_ABI_VERSION as c_int;
        // SAFETY: `view` is read during the call, the bytes it shows as long as the demuxer lives, which is at
        // most `'a`.
        let demuxer = unsafe { webp::WebPDemuxInternal(&view, 0, ptr::null_mut(), version) };
        NonNull::new(demuxer).map(|demuxer| Self { demuxer, data: PhantomData })
    }

    /// Width and height of the canvas in pixels.
    pub fn canvas(&self) -> (usize, usize) {
        // SAFETY: the demuxer is alive.
        let feature = |what| unsafe { webp::WebPDemuxGetI(self.demuxer.as_ptr(), what) as usize };
        (
            feature(webp::WebPFormatFeature::WEBP_FF_CANVAS_WIDTH),
            feature(webp::WebPFormatFeature::WEBP_FF_CANVAS_HEIGHT),
        )
    }

    /// The first frame.
    pub fn first_frame(&self) -> Option<Frame<'a>> {
        let mut iterator = MaybeUninit::<webp::WebPIterator>::zeroed();
        // SAFETY: the demuxer is alive; the call fills the iterator if it returns non-zero.
        let found = unsafe { webp::WebPDemuxGetFrame(self.demuxer.as_ptr(), 1, iterator.as_mut_ptr()) };
        if found == 0 {
            return None;
        }
        // SAFETY: filled, as the call succeeded.
        let mut iterator = unsafe { iterator.assume_init() };
        let fragment = iterator.fragment;
        // SAFETY: the iterator came from a successful call and is not used afterwards.
        unsafe { webp::WebPDemuxReleaseIterator(&mut iterator) };
        if fragment.bytes.is_null() {
            return None;
        }
        Some(Frame {
            x: usize::try_from(iterator.x_offset).ok()?,
            y: usize::try_from(iterator.y_offset).ok()?,
            width: usize::try_from(iterator.width).ok()?,
            height: usize::try_from(iterator.height).ok()?,
            // SAFETY: a fragment lies within the data that the demuxer was made from, which lives for `'a`.
            fragment: unsafe { std::slice::from_raw_parts(fragment.bytes, fragment.size) },
        })
    }
}

impl Drop for Demuxer<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `WebPDemuxInternal` and freed once.
        unsafe { webp::WebPDemuxDelete(self.demuxer.as_ptr()) }
    }
}

/// Decodes `fragment`, a picture of `width` by `height`, to RGB rows that start `stride` bytes apart in `out`.
pub fn decode_rgb(fragment: &[u8], out: &mut [u8], stride: usize, width: usize, height: usize) -> bool {
    let needed = height.checked_sub(1).and_then(|rows| rows.checked_mul(stride)?.checked_add(width * 3));
    let (Ok(mut config), Ok(stride)) = (webp::WebPDecoderConfig::new(), c_int::try_from(stride)) else {
        return false;
    };
    if needed.is_none_or(|needed| needed > out.len()) {
        return false;
    }
    config.output.colorspace = webp::WEBP_CSP_MODE::MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = webp::WebPRGBABuffer { rgba: out.as_mut_ptr(), stride, size: out.len() };
    // SAFETY: libwebp checks the picture's own size against `stride` and `size`, which describe `out`, and fails
    // rather than write past them.
    let status = unsafe { webp::WebPDecode(fragment.as_ptr(), fragment.len(), &mut config) };
    status == webp::VP8StatusCode::VP8_STATUS_OK
}
