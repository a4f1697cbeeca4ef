//! What a process costs while load runs: CPU time and memory, of itself and of its children.

use std::{fs, time::Duration};

use serde::Serialize;

/// CPU time and memory of a process in the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessCost {
    /// CPU time in seconds.
    pub(crate) cpu_seconds: f64,
    /// Resident memory at the end.
    pub(crate) resident_bytes: u64,
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessUse {
    cpu: Duration,
    resident_bytes: u64,
}

impl ProcessUse {
    /// Reads what the process `id` and its children have used; 0 for processes that have ended.
    pub(crate) fn read(id: u32) -> Self {
        let mut sum = Self::default();
        for process in [id].into_iter().chain(children(id)) {
            sum.cpu += cpu(process);
            sum.resident_bytes += resident_bytes(process);
        }
        sum
    }

    /// The cost from `before` until now.
    pub(crate) fn since(self, before: Self) -> ProcessCost {
        ProcessCost {
            cpu_seconds: self.cpu.saturating_sub(before.cpu).as_secs_f64(),
            resident_bytes: self.resident_bytes,
        }
    }
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

fn resident_bytes(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_time_and_memory() {
        let before = ProcessUse::read(std::process::id());
        let mut sum = 0_u64;
        while ProcessUse::read(std::process::id())
            .since(before)
            .cpu_seconds
            < 0.02
        {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum.wrapping_add(n)));
        }
        let cost = ProcessUse::read(std::process::id()).since(before);
        assert!(cost.resident_bytes > 1 << 20, "{cost:?}");
    }

    #[test]
    fn a_process_that_has_ended_uses_nothing() {
        let cost = ProcessUse::read(u32::MAX).since(ProcessUse::default());
        assert_eq!(
            cost,
            ProcessCost {
                cpu_seconds: 0.0,
                resident_bytes: 0
            }
        );
    }
}
