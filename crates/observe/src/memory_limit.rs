//! How much memory the process may use: the least limit of its cgroups, or the memory of the machine.
//!
//! A cgroup limits those inside it, too, so every one from the process' own to the root counts. In a container the process
//! usually sees its own cgroup as the root. Both versions of cgroups are read.
//!
//! Source: Linux, `Documentation/admin-guide/cgroup-v2.rst` (`memory.max`), `cgroup-v1/memory.rst` (`memory.limit_in_bytes`).

use std::path::Path;

/// The limit in bytes; `None` where nothing says it. Reads files that the kernel makes, which takes microseconds.
pub(super) fn read() -> Option<u64> {
    least(|path| std::fs::read_to_string(path).ok())
}

/// The least limit, by the texts of files.
fn least(text: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        // hierarchy-ID:controller-list:cgroup-path
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let limit = |group: &Path| {
            let group = group.strip_prefix("/").unwrap_or(group);
            let limit = text(&Path::new(mount).join(group).join(file))?;
            limit.trim().parse::<u64>().ok()
        };
        Path::new(group).ancestors().filter_map(limit).min()
    });
    let machine = text(Path::new("/proc/meminfo")).and_then(|text| total_memory(&text));
    limits.chain(machine).min()
}

/// The total memory of a machine in bytes, by the text of `/proc/meminfo`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read where these files are.
    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        least(|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal:        1000 kB\nMemFree: 5 kB\n");

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let group = ("/proc/self/cgroup", "0::/kubepods/pod1/app\n");
        let own = ("/sys/fs/cgroup/kubepods/pod1/app/memory.max", "max\n");
        let pod = ("/sys/fs/cgroup/kubepods/pod1/memory.max", "70000\n");
        let all = ("/sys/fs/cgroup/kubepods/memory.max", "900000\n");
        assert_eq!(limit(&[MEMINFO, group, own, pod, all]), Some(70_000));
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        let group = ("/proc/self/cgroup", "0::/\n");
        let own = ("/sys/fs/cgroup/memory.max", "4096\n");
        assert_eq!(limit(&[MEMINFO, group, own]), Some(4096));
    }

    #[test]
    fn the_first_version_of_cgroups_is_read() {
        let group = ("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n");
        let own = ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8192\n");
        let unlimited = (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(limit(&[MEMINFO, group, own, unlimited]), Some(8192));
    }

    #[test]
    fn without_a_limit_it_is_the_memory_of_the_machine() {
        let group = ("/proc/self/cgroup", "0::/\n");
        let own = ("/sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(limit(&[MEMINFO, group, own]), Some(1_024_000));
        assert_eq!(limit(&[MEMINFO]), Some(1_024_000));
        assert_eq!(limit(&[]), None);
    }
}
