//! Pixels by bands: rows go on to the next step while they are in the cache, and the whole image is never there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::Buffer;
use super::threads;
use crate::error::{CoreError, Result};

// Bands that wait for an idle thread. More would be out of the cache before the thread that filled them looks again.
const MOST_WAITING: usize = 2;

/// Takes the rows of a band, the first of which has this index. It may be called twice for a band, if the file it comes
/// from must be decoded anew.
pub type Finish<'a> = dyn Fn(usize, &[u8]) -> Result<()> + Sync + 'a;

/// What becomes of the rows of an image, band by band.
#[derive(Clone, Copy)]
pub struct Bands<'a> {
    /// Rows of a band, at least 1; the last may have fewer.
    pub rows: usize,
    /// What is done with them.
    pub finish: &'a Finish<'a>,
}

impl Bands<'_> {
    /// Refuses bands of no rows.
    ///
    /// # Errors
    /// [`CoreError::InvalidArgument`].
    pub fn check(&self) -> Result<()> {
        if self.rows > 0 { Ok(()) } else { Err(CoreError::argument("a band needs at least one row")) }
    }

    /// Finishes rows that are all there, from row `first_row` on, the first of a band.
    ///
    /// # Errors
    /// That of `finish`.
    pub fn finish_rows(&self, first_row: usize, rows: &[u8], row_bytes: usize) -> Result<()> {
        let firsts = (first_row..).step_by(self.rows);
        firsts
            .zip(rows.chunks(self.rows * row_bytes))
            .try_for_each(|(first, rows)| (self.finish)(first, rows))
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
        mut fill: impl FnMut(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.check()?;
        let band_bytes = self.rows.min(rows) * row_bytes;
        let starts = (0..rows).step_by(self.rows);
        let bands = starts.map(|first| (first, self.rows.min(rows - first) * row_bytes));
        if threads::spread() == 1 {
            let mut pixels = Buffer::take_off_line(band_bytes)?;
            for (first_row, len) in bands {
                let pixels = &mut pixels.bytes_mut()[..len];
                fill(pixels)?;
                (self.finish)(first_row, pixels)?;
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
            for (first_row, len) in bands {
                let mut pixels = desk.buffer(band_bytes)?;
                fill(&mut pixels.bytes_mut()[..len])?;
                lock(&desk.waiting).push(Filled { pixels, len, first_row });
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

struct Filled {
    pixels: Buffer,
    len: usize,
    first_row: usize,
}

// Where bands lie between the thread that fills them and those that finish them.
struct Desk<'b> {
    bands: &'b Bands<'b>,
    waiting: Mutex<Vec<Filled>>,
    spare: Mutex<Vec<Buffer>>,
    failed: Mutex<Option<CoreError>>,
}

impl Desk<'_> {
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

    fn finish(&self, band: Filled) {
        let Filled { pixels, len, first_row } = band;
        if let Err(error) = (self.bands.finish)(first_row, &pixels.bytes()[..len]) {
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

    // What each band was called with: its first row, how many bytes, and their sum.
    type Seen = Mutex<Vec<(usize, usize, u32)>>;

    fn note(seen: &Seen, first_row: usize, pixels: &[u8]) -> Result<()> {
        let sum = pixels.iter().map(|&byte| u32::from(byte)).sum();
        lock(seen).push((first_row, pixels.len(), sum));
        Ok(())
    }

    fn sorted(seen: &Seen) -> Vec<(usize, usize, u32)> {
        let mut seen = std::mem::take(&mut *lock(seen));
        seen.sort_unstable();
        seen
    }

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
    }

    #[test]
    fn rows_that_are_fed_and_rows_that_are_there_become_the_same() {
        let seen = Seen::default();
        let finish = |first_row: usize, pixels: &[u8]| note(&seen, first_row, pixels);
        let bands = Bands { rows: 3, finish: &finish };
        for rows in [1_usize, 2, 3, 4, 90, 91] {
            let pixels: Vec<u8> = (0..rows * 5).map(|at| (at * 7) as u8).collect();
            for (band, pixels) in pixels.chunks(15).enumerate() {
                finish(band * 3, pixels).expect("sums");
            }
            let expected = sorted(&seen);
            bands.finish_rows(0, &pixels, 5).expect("sums");
            assert_eq!(sorted(&seen), expected);
            let feed = || {
                let mut rest = &pixels[..];
                let fed: Result<()> = bands.feed(rows, 5, |rows| {
                    let (now, later) = rest.split_at(rows.len());
                    rows.copy_from_slice(now);
                    rest = later;
                    Ok(())
                });
                fed.map(|()| sorted(&seen))
            };
            assert_eq!(feed().as_ref(), Ok(&expected));
            for threads in [1, 2, 5] {
                assert_eq!(pool(threads).install(feed).as_ref(), Ok(&expected), "{threads} threads");
            }
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let refuse = |_: usize, pixels: &[u8]| match pixels[0] {
            2 => Err(CoreError::argument("no twos")),
            _ => Ok(()),
        };
        let bands = Bands { rows: 1, finish: &refuse };
        for threads in [1, 3] {
            let fed = |last: u8| {
                let mut band = 0;
                let fill = |rows: &mut [u8]| {
                    band += 1;
                    rows.fill(band);
                    if band == last { Err(CoreError::argument("broken")) } else { Ok(()) }
                };
                pool(threads).install(|| bands.feed(9, 1, fill))
            };
            assert_eq!(fed(1), Err(CoreError::argument("broken")), "{threads} threads");
            assert_eq!(fed(10), Err(CoreError::argument("no twos")), "{threads} threads");
        }
    }
}
