//! Entropy-coded segments: the bytes between two markers, without the zeros that are stuffed behind each 0xff.

// Bytes looked at and copied at once.
const STEP_BYTES: usize = 16;
// Plain bytes at a time, at most.
const PLAIN_BYTES: usize = 16 << 10;
// Behind the plain bytes, where decoding reads ahead and past the end of a broken segment.
const SLACK_BYTES: usize = 512;

/// The segments of a scan, one after the other. A part at a time is there in plain, so that it stays in the cache.
#[derive(Debug)]
pub struct Segments<'a> {
    raw: &'a [u8],
    // What comes next of `raw`: once the segment is there to its end, the marker.
    raw_at: usize,
    plain: Box<[u8]>,
    // Plain bytes at a time: with room for another byte, a segment that ends is seen to.
    most: usize,
    len: usize,
    is_whole: bool,
}

impl<'a> Segments<'a> {
    /// Those of a scan whose first bytes `raw` begins with.
    pub fn new(raw: &'a [u8]) -> Self {
        let most = PLAIN_BYTES.min(raw.len() + 1);
        Self { raw, raw_at: 0, plain: vec![0; most + SLACK_BYTES].into(), most, len: 0, is_whole: false }
    }

    /// Has at least `ahead` plain bytes from `at` on, or all to the end of the segment. Returns where `at` is now.
    pub fn prepare(&mut self, at: usize, ahead: usize) -> usize {
        if self.is_whole || self.len.saturating_sub(at) >= ahead {
            return at;
        }
        self.fill(at);
        0
    }

    /// `N` bytes from `at` on. Those behind the end of the segment are arbitrary.
    pub fn window<const N: usize>(&self, at: usize) -> Option<&[u8; N]> {
        self.plain.get(at..)?.first_chunk()
    }

    /// Whether bit `end`, counted from the first plain byte, is no further than the end of the segment.
    pub fn reaches(&self, end: isize) -> bool {
        !self.is_whole || end <= 8 * self.len as isize
    }

    /// Goes to the next segment, if the byte that ends after bit `end` or has it within is the last one of this segment, and
    /// the marker `code` follows.
    pub fn next(&mut self, end: isize, code: u8) -> Option<()> {
        let has_ended = self.is_whole && (end + 7) >> 3 == self.len as isize;
        if !has_ended || !self.raw.get(self.raw_at..)?.starts_with(&[0xff, code]) {
            return None;
        }
        self.raw_at += 2;
        (self.len, self.is_whole) = (0, false);
        Some(())
    }

    /// Where in the raw bytes the marker is that ends the segment, if all of the segment was there.
    pub fn end(&self) -> Option<usize> {
        let behind = self.raw.get(self.raw_at..).filter(|_| self.is_whole)?;
        let code = behind.iter().find(|&&byte| byte != 0xff)?;
        (*code != 0).then_some(self.raw_at)
    }

    #[cold]
    fn fill(&mut self, at: usize) {
        self.plain.copy_within(at.min(self.len)..self.len, 0);
        let mut len = self.len.saturating_sub(at);
        let mut rest = self.raw.get(self.raw_at..).unwrap_or_default();
        self.is_whole = loop {
            let (taken, written) = copy_plain(rest, &mut self.plain[len..self.most + STEP_BYTES]);
            (rest, len) = (&rest[taken..], len + written);
            if len >= self.most {
                break false;
            }
            match rest {
                [0xff, 0, after @ ..] => {
                    self.plain[len] = 0xff;
                    (rest, len) = (after, len + 1);
                }
                [byte, after @ ..] if *byte != 0xff => {
                    self.plain[len] = *byte;
                    (rest, len) = (after, len + 1);
                }
                _ => break true,
            }
        };
        (self.len, self.raw_at) = (len, self.raw.len() - rest.len());
    }
}

// Copies what comes before the first 0xff, and may stop a step before an end. Returns how much was read and written.
fn copy_plain(raw: &[u8], plain: &mut [u8]) -> (usize, usize) {
    let mut done = 0;
    for (from, to) in raw.as_chunks::<STEP_BYTES>().0.iter().zip(plain.as_chunks_mut::<STEP_BYTES>().0) {
        *to = *from;
        if from.iter().fold(false, |found, &byte| found | (byte == 0xff)) {
            let before = from.iter().position(|&byte| byte == 0xff).unwrap_or(STEP_BYTES);
            return (done + before, done + before);
        }
        done += STEP_BYTES;
    }
    (done, done)
}
