//! Pixels by bands: rows go on to the next step while they are in the cache, and the whole image is never there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::Buffer;
use super::threads;
use crate::error::{CoreError, Result};

// Bands that wait for an idle thread. More would be out of the cache before the thread that filled them looks again.
const MOST_WAITING: usize = 2;

/// Turns the rows of a band into its part of the output.
pub type Finish<'a> = dyn Fn(&[u8], &mut [u8]) -> Result<()> + Sync + 'a;

/// What becomes of the rows of an image, band by band.
#[derive(Clone, Copy)]
pub struct Bands<'a> {
    /// Rows of a band, at least 1; the last may have fewer.
    pub rows: usize,
    /// Bytes of the output that a band becomes, at least 1; the last may have fewer.
    pub out_bytes: usize,
    /// What is done with them.
    pub finish: &'a Finish<'a>,
}

impl Bands<'_> {
    /// Refuses an output that does not have a part for each band of `rows` rows.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`].
    pub fn check(&self, rows: usize, out_bytes: usize) -> Result<()> {
        let is_sound = self.rows > 0 && self.out_bytes > 0;
        if is_sound && rows.div_ceil(self.rows) == out_bytes.div_ceil(self.out_bytes) {
            return Ok(());
        }
        Err(CoreError::argument("the output does not hold a part for each band"))
    }

    /// Finishes rows that are all there, from the first of a band on.
    ///
    /// # Errors
    /// That of `finish`.
    pub fn finish_rows(&self, rows: &[u8], row_bytes: usize, out: &mut [u8]) -> Result<()> {
        let bands = rows.chunks(self.rows * row_bytes).zip(out.chunks_mut(self.out_bytes));
        for (rows, out) in bands {
            (self.finish)(rows, out)?;
        }
        Ok(())
    }

    /// Has `fill` make all `rows` rows in order, a band at a time, and finishes each band: at once, or in the rayon
    /// pool of the calling thread where another thread of it is idle.
    ///
    /// # Errors
    /// That of `fill` or `finish`; there may be no memory for a band.
    pub fn feed<E: From<CoreError>>(
        &self,
        rows: usize,
        row_bytes: usize,
        out: &mut [u8],
        mut fill: impl FnMut(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.check(rows, out.len())?;
        let band_bytes = self.rows.min(rows) * row_bytes;
        let starts = (0..rows).step_by(self.rows);
        let parts = starts.zip(out.chunks_mut(self.out_bytes));
        let parts = parts.map(|(start, out)| (self.rows.min(rows - start) * row_bytes, out));
        if threads::spread() == 1 {
            let mut pixels = Buffer::take_off_line(band_bytes)?;
            for (len, out) in parts {
                let pixels = &mut pixels.bytes_mut()[..len];
                fill(pixels)?;
                (self.finish)(pixels, out)?;
            }
            return Ok(());
        }
        let desk = Desk {
            bands: self,
            waiting: Mutex::default(),
            spare: Mutex::default(),
            failed: Mutex::default(),
        };
        // In place, since what `fill` holds may belong to this thread.
        rayon::in_place_scope(|scope| {
            for (len, out) in parts {
                let mut pixels = desk.buffer(band_bytes)?;
                fill(&mut pixels.bytes_mut()[..len])?;
                lock(&desk.waiting).push(Filled { pixels, len, out });
                scope.spawn(|_| desk.finish_oldest());
            }
            desk.finish_all();
            Ok::<_, E>(())
        })?;
        desk.failed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Ok(()), |error| Err(error.into()))
    }
}

struct Filled<'o> {
    pixels: Buffer,
    len: usize,
    out: &'o mut [u8],
}

// Where bands lie between the thread that fills them and those that finish them.
struct Desk<'b, 'o> {
    bands: &'b Bands<'b>,
    waiting: Mutex<Vec<Filled<'o>>>,
    spare: Mutex<Vec<Buffer>>,
    failed: Mutex<Option<CoreError>>,
}

impl Desk<'_, '_> {
    // A buffer to fill. If no thread came for the bands that wait, finishes the last of them, which is in the cache.
    fn buffer(&self, len: usize) -> Result<Buffer> {
        let last = {
            let mut waiting = lock(&self.waiting);
            if waiting.len() < MOST_WAITING { None } else { waiting.pop() }
        };
        if let Some(last) = last {
            self.finish(last);
        }
        match lock(&self.spare).pop() {
            Some(buffer) => Ok(buffer),
            None => Buffer::take_off_line(len),
        }
    }

    fn finish_oldest(&self) {
        let oldest = {
            let mut waiting = lock(&self.waiting);
            if waiting.is_empty() { None } else { Some(waiting.remove(0)) }
        };
        if let Some(oldest) = oldest {
            self.finish(oldest);
        }
    }

    fn finish_all(&self) {
        loop {
            let Some(last) = lock(&self.waiting).pop() else { return };
            self.finish(last);
        }
    }

    fn finish(&self, band: Filled<'_>) {
        let Filled { pixels, len, out } = band;
        if let Err(error) = (self.bands.finish)(&pixels.bytes()[..len], out) {
            lock(&self.failed).get_or_insert(error);
        }
        lock(&self.spare).push(pixels);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Each band becomes the sum of its bytes, and how many there were.
    fn sums(pixels: &[u8], out: &mut [u8]) -> Result<()> {
        out[0] = pixels.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(byte));
        out[1] = pixels.len() as u8;
        Ok(())
    }

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
    }

    #[test]
    fn rows_that_are_fed_and_rows_that_are_there_become_the_same() {
        let bands = Bands { rows: 3, out_bytes: 2, finish: &sums };
        for rows in [1_usize, 2, 3, 4, 90, 91] {
            let pixels: Vec<u8> = (0..rows * 5).map(|at| (at * 7) as u8).collect();
            let mut expected = vec![0; rows.div_ceil(3) * 2];
            for (pixels, out) in pixels.chunks(15).zip(expected.chunks_mut(2)) {
                sums(pixels, out).expect("sums");
            }
            let mut found = vec![0; expected.len()];
            bands.finish_rows(&pixels, 5, &mut found).expect("sums");
            assert_eq!(found, expected);
            let feed = || {
                let (mut found, mut rest) = (vec![0; expected.len()], &pixels[..]);
                let fed: Result<()> = bands.feed(rows, 5, &mut found, |rows| {
                    let (now, later) = rest.split_at(rows.len());
                    rows.copy_from_slice(now);
                    rest = later;
                    Ok(())
                });
                fed.map(|()| found)
            };
            assert_eq!(feed().as_ref(), Ok(&expected));
            for threads in [1, 2, 5] {
                assert_eq!(pool(threads).install(feed).as_ref(), Ok(&expected), "{threads} threads");
            }
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let refuse = |pixels: &[u8], _: &mut [u8]| match pixels[0] {
            2 => Err(CoreError::argument("no twos")),
            _ => Ok(()),
        };
        let bands = Bands { rows: 1, out_bytes: 1, finish: &refuse };
        for threads in [1, 3] {
            let fed = |last: u8| {
                let mut band = 0;
                let fill = |rows: &mut [u8]| {
                    band += 1;
                    rows.fill(band);
                    if band == last { Err(CoreError::argument("broken")) } else { Ok(()) }
                };
                pool(threads).install(|| bands.feed(9, 1, &mut [0; 9], fill))
            };
            assert_eq!(fed(1), Err(CoreError::argument("broken")), "{threads} threads");
            assert_eq!(fed(10), Err(CoreError::argument("no twos")), "{threads} threads");
        }
    }
}
