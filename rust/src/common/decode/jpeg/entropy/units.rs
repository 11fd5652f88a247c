//! The units of a scan, one after the other: where their bits are, and the restarts between them.

use super::bits::{Bits, WINDOW_BYTES};
use super::segment::Segments;

/// A scan's coded bytes, how far they are decoded, and how many units are left.
#[derive(Debug)]
pub struct Units<'a> {
    segments: Segments<'a>,
    bits: Bits,
    at: usize,
    left: u64,
    restart_interval: u32,
    before_restart: u32,
    restart: u8,
}

impl<'a> Units<'a> {
    /// Those whose coded bytes `data` begins with. A restart interval of 0 means none.
    pub fn new(data: &'a [u8], count: u64, restart_interval: u32) -> Self {
        Self {
            segments: Segments::new(data),
            bits: Bits::default(),
            at: 0,
            left: count,
            restart_interval,
            before_restart: restart_interval,
            restart: 0,
        }
    }

    /// Begins the next unit, of up to `bytes` coded bytes. Returns whether it is the first one after a restart.
    #[inline(always)]
    pub fn begin(&mut self, bytes: usize) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        let is_restart = self.restart_interval > 0 && self.before_restart == 0;
        if is_restart {
            self.restart()?;
        }
        self.before_restart = self.before_restart.wrapping_sub(1);
        self.at = self.segments.prepare(self.at, bytes);
        Some(is_restart)
    }

    /// How many units come before the next restart, if `count` are left before something else.
    #[inline]
    pub fn before_restart(&self, count: u32) -> u32 {
        if self.restart_interval > 0 { self.before_restart.min(count) } else { count }
    }

    /// Passes over `count` units that have no bits, no further than to the next restart.
    #[inline]
    pub fn skip(&mut self, count: u32) -> Option<()> {
        self.left = self.left.checked_sub(count.into())?;
        self.before_restart = self.before_restart.wrapping_sub(count);
        Some(())
    }

    /// Has up to `bytes` coded bytes of a unit that has begun.
    #[inline]
    pub fn prepare(&mut self, bytes: usize) {
        self.at = self.segments.prepare(self.at, bytes);
    }

    /// The bits that come next, and from which byte on more follow.
    #[inline(always)]
    pub fn place(&self) -> (Bits, usize) {
        (self.bits, self.at)
    }

    /// The bytes from `at` on.
    #[inline(always)]
    pub fn window(&self, at: usize) -> Option<&[u8; WINDOW_BYTES]> {
        self.segments.window(at)
    }

    /// Moves on to a place; `None` if it is beyond the end of the segment.
    #[inline(always)]
    pub fn move_to(&mut self, bits: Bits, at: usize) -> Option<()> {
        (self.bits, self.at) = (bits, at);
        self.segments.reaches(self.end_bit()).then_some(())
    }

    /// Whether no unit is left.
    #[inline(always)]
    pub fn are_over(&self) -> bool {
        self.left == 0
    }

    /// Where in the coded bytes the marker behind the last unit is.
    pub fn end(&self) -> Option<usize> {
        self.segments.end()
    }

    fn restart(&mut self) -> Option<()> {
        self.segments.next(self.end_bit(), 0xd0 + self.restart)?;
        (self.bits, self.at) = (Bits::default(), 0);
        self.restart = (self.restart + 1) & 7;
        self.before_restart = self.restart_interval;
        Some(())
    }

    // Which bit of the plain bytes comes next. Bytes that were moved out may have left some bits: then it is negative.
    #[inline(always)]
    fn end_bit(&self) -> isize {
        8 * self.at as isize - self.bits.count() as isize
    }
}
