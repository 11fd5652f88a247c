//! The C shim around libjpeg (`shim.c`).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::entropy::{Block, Layout, Scan, Start, Step};
use super::pixels::Frame;
use crate::error::{CoreError, Result};

// Links libjpeg-turbo, whose functions only the shim calls.
use turbojpeg_sys as _;

#[repr(C)]
struct Shim {
    opaque: [u8; 0],
}

type DecodeUnit = unsafe extern "C" fn(*mut c_void, *mut &mut Block, *mut usize) -> c_int;

unsafe extern "C" {
    fn smr_jpeg_new(most_scans: c_int) -> *mut Shim;
    fn smr_jpeg_free(shim: *mut Shim);
    fn smr_jpeg_show(shim: *mut Shim, data: *const u8, length: usize);
    fn smr_jpeg_unread(shim: *const Shim) -> usize;
    fn smr_jpeg_is_skipping(shim: *const Shim) -> c_int;
    fn smr_jpeg_read_header(shim: *mut Shim) -> c_int;
    fn smr_jpeg_is_arithmetic(shim: *const Shim) -> c_int;
    fn smr_jpeg_size(shim: *const Shim, width: *mut c_uint, height: *mut c_uint, components: *mut c_int);
    fn smr_jpeg_start(shim: *mut Shim) -> c_int;
    fn smr_jpeg_progression(shim: *const Shim, start: *mut Start) -> c_int;
    fn smr_jpeg_layout(shim: *const Shim, layout: *mut Layout) -> c_int;
    fn smr_jpeg_frame(shim: *const Shim, frame: *mut Frame) -> c_int;
    fn smr_jpeg_replace_entropy(shim: *mut Shim, decode: DecodeUnit, scan: *mut c_void);
    fn smr_jpeg_row_bytes(shim: *const Shim) -> usize;
    fn smr_jpeg_rows(shim: *mut Shim, out: *mut u8, count: usize, done: *mut usize) -> c_int;
    fn smr_jpeg_finish(shim: *mut Shim) -> c_int;
}

/// How a step of libjpeg ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The step is complete.
    Done,
    /// More input is needed; repeat the step with it.
    Suspended,
    /// The file is broken: nothing may follow.
    Broken,
    /// There are more scans than were allowed: nothing may follow.
    TooManyScans,
}

/// A libjpeg decompressor that reads from slices living as long as `'a`.
pub struct Decompressor<'a> {
    shim: NonNull<Shim>,
    failed: Option<Status>,
    input: &'a [u8],
    // From a box; libjpeg holds it too.
    scan: Option<NonNull<Scan<'a>>>,
}

impl<'a> Decompressor<'a> {
    /// A decompressor without input, for pictures of up to `most_scans` scans.
    ///
    /// # Errors
    /// [`CoreError::Internal`] if there is no memory.
    pub fn new(most_scans: i32) -> Result<Self> {
        // SAFETY: takes a number; returns null or an object that `Drop` frees.
        let shim = unsafe { smr_jpeg_new(most_scans) };
        let shim = NonNull::new(shim)
            .ok_or_else(|| CoreError::Internal("no memory for a JPEG decompressor".to_owned()))?;
        Ok(Self { shim, failed: None, input: &[], scan: None })
    }

    /// Makes `data` the input. It starts with the bytes that were left unread.
    pub fn show(&mut self, data: &'a [u8]) {
        self.input = data;
        // SAFETY: `data` outlives the decompressor, which only reads it.
        unsafe { smr_jpeg_show(self.shim.as_ptr(), data.as_ptr(), data.len()) }
    }

    /// Bytes of the input that were not consumed.
    pub fn unread(&self) -> usize {
        // SAFETY: the shim is alive; it reads one field.
        unsafe { smr_jpeg_unread(self.shim.as_ptr()) }
    }

    /// Whether libjpeg is to pass over bytes that it has not been shown: no step may run before they were.
    pub fn is_skipping(&self) -> bool {
        // SAFETY: as for `unread`.
        unsafe { smr_jpeg_is_skipping(self.shim.as_ptr()) != 0 }
    }

    /// Reads up to the first scan.
    pub fn read_header(&mut self) -> Status {
        // SAFETY: the shim is alive and catches libjpeg's errors.
        self.step(|shim| unsafe { smr_jpeg_read_header(shim) })
    }

    /// Whether the entropy coding is arithmetic. After the header.
    pub fn is_arithmetic(&self) -> bool {
        // SAFETY: as for `unread`.
        unsafe { smr_jpeg_is_arithmetic(self.shim.as_ptr()) != 0 }
    }

    /// Width and height in pixels, and the number of components. After the header.
    pub fn size(&self) -> (usize, usize, usize) {
        let (mut width, mut height, mut components) = (0, 0, 0);
        // SAFETY: the shim is alive and the pointers are to locals.
        unsafe { smr_jpeg_size(self.shim.as_ptr(), &mut width, &mut height, &mut components) };
        (width as usize, height as usize, usize::try_from(components).unwrap_or(0))
    }

    /// Starts the decompression; reads the whole file if that has several scans.
    pub fn start(&mut self) -> Status {
        // SAFETY: the shim is alive and catches libjpeg's errors.
        self.step(|shim| unsafe { smr_jpeg_start(shim) })
    }

    /// Whether [`Scan`] does the Huffman decoding. Then trouble says nothing about the file: only libjpeg's own decoding
    /// tells what becomes of a broken one.
    pub fn has_replaced_entropy(&self) -> bool {
        self.scan.is_some()
    }

    /// What is known of the scans of a progressive picture, and the input from the header of the first on. Between the header
    /// and the start, with all of the input shown.
    pub fn progression(&self) -> Option<(Start, &'a [u8])> {
        let mut start = MaybeUninit::uninit();
        // SAFETY: the shim is alive, and fills the start if it returns another number than 0.
        let start: Start = unsafe {
            if smr_jpeg_progression(self.shim.as_ptr(), start.as_mut_ptr()) == 0 {
                return None;
            }
            start.assume_init()
        };
        let header_bytes = 8 + 2 * start.components as usize;
        let at = (self.input.len() - self.coded().len()).checked_sub(header_bytes)?;
        Some((start, self.input.get(at..)?))
    }

    /// The rest of the input as a scan, if [`Scan`] is for it. After the start, with all of the input shown.
    pub fn scan(&self) -> Option<Scan<'a>> {
        let mut layout = MaybeUninit::uninit();
        // SAFETY: the shim is alive, and fills the layout if it returns another number than 0.
        let layout = unsafe {
            if smr_jpeg_layout(self.shim.as_ptr(), layout.as_mut_ptr()) == 0 {
                return None;
            }
            layout.assume_init()
        };
        Scan::new(self.coded(), &layout)
    }

    /// The bytes of the input that were not consumed.
    pub fn coded(&self) -> &'a [u8] {
        self.input.get(self.input.len() - self.unread().min(self.input.len())..).unwrap_or_default()
    }

    /// What the picture consists of, if it is grey or has luminance and two colour differences. Where there is a scan or a
    /// progression.
    pub fn frame(&self) -> Option<Frame> {
        let mut frame = MaybeUninit::uninit();
        // SAFETY: the shim is alive, and fills the frame if it returns another number than 0.
        unsafe { (smr_jpeg_frame(self.shim.as_ptr(), frame.as_mut_ptr()) != 0).then(|| frame.assume_init()) }
    }

    /// Has `scan` do the Huffman decoding. Once, after the start.
    pub fn replace_entropy(&mut self, scan: Scan<'a>) {
        let scan = *self.scan.insert(NonNull::from(Box::leak(Box::new(scan))));
        // SAFETY: the shim is alive; the scan lives until `Drop`, and nothing but `decode_unit` uses it until then.
        unsafe { smr_jpeg_replace_entropy(self.shim.as_ptr(), decode_unit, scan.as_ptr().cast()) };
    }

    /// Bytes of a decoded row. After the start.
    pub fn row_bytes(&self) -> usize {
        // SAFETY: as for `unread`.
        unsafe { smr_jpeg_row_bytes(self.shim.as_ptr()) }
    }

    /// Fills `out` with the next rows; `done` counts those that are there already. After the start.
    pub fn read_rows(&mut self, out: &mut [u8], done: &mut usize) -> Status {
        let rows = out.len() / self.row_bytes().max(1);
        // SAFETY: the shim catches libjpeg's errors and writes at most `rows` rows of `row_bytes` each, which
        // is what `out` holds.
        self.step(|shim| unsafe { smr_jpeg_rows(shim, out.as_mut_ptr(), rows, done) })
    }

    /// Reads up to the end marker. After all rows.
    pub fn finish(&mut self) -> Status {
        // SAFETY: the shim is alive and catches libjpeg's errors.
        self.step(|shim| unsafe { smr_jpeg_finish(shim) })
    }

    fn step(&mut self, call: impl FnOnce(*mut Shim) -> c_int) -> Status {
        if let Some(status) = self.failed {
            return status;
        }
        let status = match call(self.shim.as_ptr()) {
            0 => return Status::Done,
            1 => return Status::Suspended,
            3 => Status::TooManyScans,
            _ => Status::Broken,
        };
        self.failed = Some(status);
        status
    }
}

impl Drop for Decompressor<'_> {
    fn drop(&mut self) {
        // SAFETY: the shim came from `smr_jpeg_new` and is freed once; then nothing holds the scan any more, which
        // came from a box.
        unsafe {
            smr_jpeg_free(self.shim.as_ptr());
            if let Some(scan) = self.scan {
                drop(Box::from_raw(scan.as_ptr()));
            }
        }
    }
}

/// # Safety
/// `scan` is a [`Scan`] that nobody else uses, `blocks` points to as many pointers as a unit of it has blocks, each to
/// another block, and `consumed` to a number.
unsafe extern "C" fn decode_unit(scan: *mut c_void, blocks: *mut &mut Block, consumed: *mut usize) -> c_int {
    // SAFETY: as this function demands; a reference is a pointer.
    let (scan, consumed) = unsafe { (&mut *scan.cast::<Scan<'_>>(), &mut *consumed) };
    // SAFETY: likewise.
    let blocks = unsafe { std::slice::from_raw_parts_mut(blocks, scan.blocks()) };
    // A panic must not unwind into C. There should be none.
    match catch_unwind(AssertUnwindSafe(|| scan.decode(blocks))).unwrap_or(Step::GaveUp) {
        Step::Done => 1,
        Step::Last(length) => {
            *consumed = length;
            1
        }
        Step::GaveUp => 0,
    }
}
