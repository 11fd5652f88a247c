//! The rayon pool that all work of the core runs on.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::ThreadPool;

use crate::error::{CoreError, Result};

/// Environment variable that overrides the number of threads.
pub const THREADS_VARIABLE: &str = "SGL_MM_RS_THREADS";

const MOST_THREADS_BY_DEFAULT: usize = 8;
// More is a slip of the keyboard, and would take the machine down before it failed.
const MOST_THREADS: usize = 1024;

// 0 = not set by the program.
static THREAD_BUDGET: AtomicUsize = AtomicUsize::new(0);

// A fork leaves the child without the pool's threads, and dropping the dead pool would wait for them. So
// each process appends a pool of its own to this list and leaks its parent's. Reading takes no lock, which
// a thread of the parent could have held at the moment of the fork.
struct Node {
    process_id: u32,
    pool: ThreadPool,
    next: OnceLock<Box<Node>>,
}

static POOLS: OnceLock<Node> = OnceLock::new();

fn new_node() -> Node {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(thread_count())
        .thread_name(|index| format!("mm-core-{index}"))
        .build()
        .unwrap_or_else(|error| panic!("cannot start the threads of the core: {error}"));
    Node { process_id: std::process::id(), pool, next: OnceLock::new() }
}

/// The pool of this process, built at first use.
///
/// # Panics
/// If the system refuses to start threads; the Python edge turns that into `InternalError`.
pub fn pool() -> &'static ThreadPool {
    let mut node = POOLS.get_or_init(new_node);
    let process_id = std::process::id();
    while node.process_id != process_id {
        node = node.next.get_or_init(|| Box::new(new_node()));
    }
    &node.pool
}

/// Sets the thread budget of this process. Must be called before the pool is first used.
///
/// A worker of a node that several workers share calls this with its share, since neither the affinity mask
/// nor the core count tells it. `SGL_MM_RS_THREADS` still wins.
///
/// # Errors
/// [`CoreError::InvalidArgument`] if `threads` is 0 or the pool already runs with another number.
pub fn set_thread_budget(threads: usize) -> Result<()> {
    if threads == 0 {
        return Err(CoreError::argument("the thread budget must be at least 1"));
    }
    THREAD_BUDGET.store(threads, Ordering::SeqCst);
    let expected = thread_count();
    let mut node = POOLS.get();
    while let Some(current) = node {
        if current.process_id == std::process::id() {
            let running = current.pool.current_num_threads();
            return if running == expected {
                Ok(())
            } else {
                Err(CoreError::argument(format!(
                    "the core already runs {running} threads, so its budget cannot become {expected}; \
                     set it before the first image"
                )))
            };
        }
        node = current.next.get().map(|next| &**next);
    }
    Ok(())
}

/// How many threads the pool has, or would have: `SGL_MM_RS_THREADS`, else the budget (1024 at most of either),
/// else `min(8, cores the process may use)`.
pub fn thread_count() -> usize {
    if let Some(threads) = std::env::var(THREADS_VARIABLE).ok().and_then(|text| parse_threads(&text)) {
        return threads.min(MOST_THREADS);
    }
    match THREAD_BUDGET.load(Ordering::SeqCst) {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS_BY_DEFAULT),
        budget => budget.min(MOST_THREADS),
    }
}

thread_local! {
    static KEEPS_WHOLE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, and if `whole` keeps what this thread does of it on this thread: the others have enough to do, and an
/// image in parts takes some percent more.
pub fn keeping_whole<T>(whole: bool, work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            KEEPS_WHOLE.set(self.0);
        }
    }
    let _restore = Restore(KEEPS_WHOLE.replace(whole));
    work()
}

/// How many threads one image may be spread over here: those of the rayon pool that this thread is one of.
pub fn spread() -> usize {
    // Asked only within a pool: elsewhere, asking would start another one.
    if KEEPS_WHOLE.get() || rayon::current_thread_index().is_none() {
        1
    } else {
        rayon::current_num_threads()
    }
}

fn parse_threads(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|&threads| threads > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_numbers_override() {
        assert_eq!(parse_threads(" 3 "), Some(3));
        assert_eq!(parse_threads("0"), None);
        assert_eq!(parse_threads("many"), None);
    }

    #[test]
    fn the_pool_runs_work_and_keeps_its_size() {
        assert_eq!(pool().install(rayon::current_num_threads), thread_count());
    }
}
