//! What a process costs while load runs: CPU time and memory, of itself and of its children.
//!
//! Memory is the proportional set size (PSS), in which a page that several processes share counts in parts. The resident set
//! size counts it in full for each of them, so a proxy with several processes would seem to have its code and what it had
//! allocated before it forked several times.

use std::{fs, time::Duration};

use serde::Serialize;

/// CPU time and memory of a process in the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessCost {
    /// CPU time in seconds.
    pub(crate) cpu_seconds: f64,
    /// The processors that it kept busy, on average. If one processor is its own and was not idle for the rest of the time, then
    /// something else ran there.
    pub(crate) busy: f64,
    /// Memory at the end.
    pub(crate) memory: ProcessMemory,
}

/// CPU time that a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessUse {
    cpu: Duration,
}

impl ProcessUse {
    /// Reads what the process `id` and its children have used; 0 for processes that have ended.
    pub(crate) fn read(id: u32) -> Self {
        Self {
            cpu: with_children(id).map(cpu).sum(),
        }
    }

    /// The CPU time from `before` until now.
    pub(crate) fn cpu_since(self, before: Self) -> Duration {
        self.cpu.saturating_sub(before.cpu)
    }
}

/// The memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessMemory {
    pub(crate) bytes: u64,
    pub(crate) kind: MemoryKind,
}

/// How memory is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum MemoryKind {
    /// Proportional set size: shared pages in parts.
    #[default]
    #[serde(rename = "PSS")]
    Proportional,
    /// Resident set size: shared pages in full.
    #[serde(rename = "RSS")]
    Resident,
}

impl MemoryKind {
    /// As reports name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Proportional => "PSS",
            Self::Resident => "RSS",
        }
    }
}

impl ProcessMemory {
    /// Reads the memory of the process `id` and its children; 0 for processes that have ended.
    ///
    /// Only the owner of a process and root may read its PSS. If that of one process cannot be read, it is the RSS of all.
    /// The kernel looks at each page of a process for its PSS, so this takes milliseconds.
    pub(crate) fn read(id: u32) -> Self {
        Self::of(with_children(id).collect(), proportional_bytes)
    }

    fn of(processes: Vec<u32>, proportional: impl Fn(u32) -> Option<u64>) -> Self {
        let alive = processes.into_iter().filter(|id| resident_bytes(*id) > 0);
        let alive: Vec<u32> = alive.collect();
        let all: Option<u64> = alive.iter().map(|id| proportional(*id)).sum();
        match all {
            Some(bytes) => Self {
                bytes,
                kind: MemoryKind::Proportional,
            },
            None => Self {
                bytes: alive.iter().map(|id| resident_bytes(*id)).sum(),
                kind: MemoryKind::Resident,
            },
        }
    }
}

/// The time that each processor of this machine has been idle, and in all, in ticks of the kernel.
///
/// A proxy that leaves the processor of its clients idle has to wake it at each write, which is a part of its CPU time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTimes(Vec<(u64, u64)>);

impl ProcessorTimes {
    /// Reads them; none where the kernel does not tell.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let (name, times) = line.split_once(' ')?;
            // The line `cpu` is their sum.
            name.strip_prefix("cpu")
                .filter(|number| !number.is_empty())?;
            let times = times.split_whitespace().map(str::parse);
            let times: Vec<u64> = times.collect::<Result<_, _>>().ok()?;
            // user, nice, system, idle, iowait, irq, softirq, steal; those of guests count in the first two.
            let idle = times.get(3)? + times.get(4)?;
            Some((idle, times.iter().take(8).sum()))
        });
        Self(lines.collect())
    }

    /// The part of the time from `before` until now in which each processor was idle.
    pub(crate) fn idle_since(&self, before: &Self) -> Vec<f64> {
        let pairs = self.0.iter().zip(&before.0);
        let parts = pairs.map(|(now, before)| {
            let idle = now.0.saturating_sub(before.0);
            let all = now.1.saturating_sub(before.1);
            #[expect(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
            let part = idle as f64 / all.max(1) as f64;
            part
        });
        parts.collect()
    }
}

/// A process and its children.
fn with_children(id: u32) -> impl Iterator<Item = u32> {
    [id].into_iter().chain(children(id))
}

/// The children of a process, such as the workers of nginx.
fn children(id: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter(|process| parent(*process) == Some(id))
        .collect()
}

fn parent(id: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// CPU time of all threads that live.
fn cpu(id: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else {
        return Duration::ZERO;
    };
    let nanos = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// `None` if it may not be read, or the kernel has no such file.
fn proportional_bytes(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    bytes_after(&text, "Pss:")
}

fn resident_bytes(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    bytes_after(&text, "VmRSS:").unwrap_or(0)
}

/// The number of bytes in the line `KEY NUMBER kB`.
fn bytes_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_time_and_memory() {
        let id = std::process::id();
        let before = ProcessUse::read(id);
        let mut sum = 0_u64;
        while ProcessUse::read(id).cpu_since(before) < Duration::from_millis(20) {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum.wrapping_add(n)));
        }
        let memory = ProcessMemory::read(id);
        assert!(memory.bytes > 1 << 20, "{memory:?}");
    }

    #[test]
    fn a_process_that_has_ended_uses_nothing() {
        let cpu = ProcessUse::read(u32::MAX).cpu_since(ProcessUse::default());
        assert_eq!(cpu, Duration::ZERO);
        assert_eq!(ProcessMemory::read(u32::MAX), ProcessMemory::default());
    }

    #[test]
    fn memory_is_resident_where_the_proportional_part_of_one_process_may_not_be_read() {
        let own = std::process::id();
        let known = ProcessMemory::of(vec![own, u32::MAX], |_| Some(7));
        assert_eq!((known.bytes, known.kind), (7, MemoryKind::Proportional));
        let secret = ProcessMemory::of(vec![own], |_| None);
        assert!(secret.bytes > 1 << 20, "{secret:?}");
        assert_eq!(secret.kind, MemoryKind::Resident);
    }

    #[test]
    fn idle_processors_are_those_of_the_time_between() {
        let at = |idle: u64, user: u64| {
            let line = format!("{user} 0 0 {idle} 0 0 0 0 9 9");
            ProcessorTimes::parse(&format!(
                "cpu  {line}\ncpu0 {line}\ncpu1 1 1 1 1 1 1 1 1\nintr 7\n"
            ))
        };
        let idle = at(40, 90).idle_since(&at(10, 80));
        assert_eq!(idle, [0.75, 0.0]);
        assert_eq!(at(1, 1).idle_since(&ProcessorTimes::default()), [0.0; 0]);
        assert!(!ProcessorTimes::read().0.is_empty());
    }

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let rollup = "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:    1024 kB\nPss:     100 kB\nPss_Dirty:  50 kB\n";
        assert_eq!(bytes_after(rollup, "Pss:"), Some(100 << 10));
        assert_eq!(bytes_after("VmRSS:\t 4 kB\n", "VmRSS:"), Some(4 << 10));
        assert_eq!(bytes_after(rollup, "Swap:"), None);
    }
}
