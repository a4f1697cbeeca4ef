//! Memory for threads that do not serve clients.
//!
//! What they decode takes up to a hundred megabytes for a moment, again and again. They have an arena of their own, which
//! returns freed memory to the operating system soon. The other arenas keep it for seconds, since that makes requests
//! cheaper.

use std::sync::OnceLock;

use tikv_jemalloc_ctl::{Access as _, AsName as _, Result};

/// How long freed memory is kept, in milliseconds.
const KEPT: isize = 200;

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
