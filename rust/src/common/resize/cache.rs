//! Tables of weights, kept for the next image of the same sizes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// How often a held lock is asked for again before the table is simply made anew.
const TRIES: usize = 200;

struct Entry<Key, Table> {
    key: Key,
    table: Arc<Table>,
    size_bytes: usize,
    used: u64,
}

/// A least-recently-used cache, bounded in bytes.
///
/// Never waits for its lock: in a child forked while another thread held it, nobody would give it back.
pub struct Cache<Key, Table> {
    entries: Mutex<Vec<Entry<Key, Table>>>,
    clock: AtomicU64,
    limit_bytes: usize,
}

impl<Key: PartialEq, Table> Cache<Key, Table> {
    /// An empty cache.
    pub const fn new(limit_bytes: usize) -> Self {
        Self { entries: Mutex::new(Vec::new()), clock: AtomicU64::new(0), limit_bytes }
    }

    /// The table of `key`, made by `make` if it is not there; `None` if that makes none.
    pub fn get(
        &self,
        key: Key,
        size_bytes: impl Fn(&Table) -> usize,
        make: impl FnOnce() -> Option<Table>,
    ) -> Option<Arc<Table>> {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(mut entries) = self.entries()
            && let Some(entry) = entries.iter_mut().find(|entry| entry.key == key)
        {
            entry.used = used;
            return Some(Arc::clone(&entry.table));
        }
        let table = Arc::new(make()?);
        let size_bytes = size_bytes(&table);
        if size_bytes <= self.limit_bytes
            && let Some(mut entries) = self.entries()
        {
            entries.retain(|entry| entry.key != key);
            let mut total: usize = entries.iter().map(|entry| entry.size_bytes).sum();
            while total + size_bytes > self.limit_bytes {
                let oldest = (0..entries.len()).min_by_key(|&index| entries[index].used)?;
                total -= entries.swap_remove(oldest).size_bytes;
            }
            entries.push(Entry { key, table: Arc::clone(&table), size_bytes, used });
        }
        Some(table)
    }

    fn entries(&self) -> Option<MutexGuard<'_, Vec<Entry<Key, Table>>>> {
        (0..TRIES).find_map(|_| {
            let entries = self.entries.try_lock().ok();
            if entries.is_none() {
                std::hint::spin_loop();
            }
            entries
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_made_once_and_the_oldest_goes_first() {
        let cache = Cache::<u32, u32>::new(100);
        let get = |key, made: &mut usize| {
            cache.get(
                key,
                |_| 40,
                || {
                    *made += 1;
                    Some(key * 10)
                },
            )
        };
        let mut made = 0;
        for (key, expected) in [(1, 1), (1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4), (3, 5)] {
            assert_eq!(get(key, &mut made).as_deref(), Some(&(key * 10)));
            assert_eq!(made, expected, "after {key}");
        }
        assert_eq!(cache.get(9, |_| 40, || None), None);
        assert_eq!(cache.get(9, |_| 101, || Some(7)).as_deref(), Some(&7), "too large to keep, but made");
    }

    #[test]
    fn a_held_lock_costs_a_table_and_no_wait() {
        let cache = Cache::<u32, u32>::new(100);
        let held = cache.entries.lock().expect("lock");
        assert_eq!(cache.get(1, |_| 1, || Some(5)).as_deref(), Some(&5));
        drop(held);
        assert_eq!(cache.get(1, |_| 1, || Some(6)).as_deref(), Some(&6), "nothing was kept");
    }
}
