//! The `fairgate` command.

#[cfg(unix)]
mod background_memory;

use std::process::ExitCode;

/// The C library's allocator keeps what several threads have freed: 10 000 hosted objects, written by four
/// clients, then occupy more than twice the memory that is in use. This one returns it
/// within about three seconds, as `.cargo/config.toml` sets it.
#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    #[cfg(unix)]
    background_memory::return_large_allocations();
    #[cfg(unix)]
    fairgate_base::background::set_own_memory(background_memory::use_arena);
    fairgate::cli::main()
}
