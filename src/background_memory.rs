//! Memory for threads that do not serve clients.
//!
//! What they decode takes up to a hundred megabytes for a moment, again and again. They have an arena of their own, which
//! returns freed memory to the operating system soon. That of large allocations, such as the 64 MiB in which unfinished
//! request heads are kept, returns it at once. The other arenas keep it for seconds, since that makes requests cheaper.

use std::sync::OnceLock;

use tikv_jemalloc_ctl::{Access as _, AsName as _, Result};

/// How long freed memory is kept, in milliseconds.
const KEPT: isize = 200;

/// The length from which allocations of all threads are in one arena: the allocator's default.
const LARGE: usize = 8 << 20;

/// Has freed allocations of 8 MiB and more returned at once. The allocator does so by default, but not with threads of its own for
/// that: then it keeps them as long as short ones. If it fails, the process takes more memory for a while.
pub(crate) fn return_large_allocations() {
    let _ = shorten_decay_of_large();
}

fn shorten_decay_of_large() -> Result<u32> {
    // The arena comes after those of threads, and exists from the first large allocation on, which touches no page.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE)));
    let all: u32 = "opt.narenas\0".name().read()?;
    decay_of(all).as_str().name().write(0_isize)?;
    Ok(all)
}

/// Has the current thread allocate from the arena for threads that do not serve clients. If there is none, the thread
/// works as well, and the process takes more memory.
pub(crate) fn use_arena() {
    static ARENA: OnceLock<Option<u32>> = OnceLock::new();
    if let Some(arena) = ARENA.get_or_init(|| new_arena().ok()) {
        let _ = "thread.arena\0".name().write(*arena);
    }
}

fn new_arena() -> Result<u32> {
    let arena: u32 = "arenas.create\0".name().read()?;
    decay_of(arena).as_str().name().write(KEPT)?;
    Ok(arena)
}

/// The name of the time for which an arena keeps freed memory.
fn decay_of(arena: u32) -> String {
    format!("arena.{arena}.dirty_decay_ms\0")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The arena of the current thread, and how long it keeps freed memory.
    fn arena() -> (u32, isize) {
        let arena: u32 = "thread.arena\0".name().read().unwrap();
        (arena, decay_of(arena).as_str().name().read().unwrap())
    }

    /// A figure of an arena, as of now.
    fn stat(arena: u32, name: &str) -> usize {
        "epoch\0".name().write(1_u64).unwrap();
        let name = format!("stats.arenas.{arena}.{name}\0");
        name.as_str().name().read().unwrap()
    }

    #[test]
    fn large_allocations_are_in_an_arena_that_keeps_no_freed_memory() {
        let arena = shorten_decay_of_large().unwrap();
        let kept: isize = decay_of(arena).as_str().name().read().unwrap();
        assert_eq!(kept, 0);
        let heads = std::hint::black_box(vec![0_u8; 64 << 20]);
        assert!(stat(arena, "large.allocated") >= heads.len());
        drop(heads);
        assert_eq!(stat(arena, "large.allocated"), 0);
        assert_eq!(stat(arena, "pdirty"), 0, "freed pages are kept");
    }

    #[test]
    fn threads_share_an_arena_that_keeps_freed_memory_for_a_short_time() {
        let in_background = || {
            thread::spawn(|| {
                use_arena();
                arena()
            })
        };
        let [first, second] = [in_background(), in_background()].map(|one| one.join().unwrap());
        assert_eq!(first, second);
        assert_eq!(first.1, KEPT);
        let (other, kept) = arena();
        assert!(other != first.0 && kept > KEPT, "{other} {kept}");
    }
}
