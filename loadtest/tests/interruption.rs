//! What is left of a load test that is interrupted: nothing.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// The pause between two looks at what runs.
const POLL: Duration = Duration::from_millis(10);
/// So often it is looked at.
const LOOKS: u32 = 6000;

/// A load test on this machine, which would take a minute, and the directory of its temporary files.
struct LocalRun {
    directory: PathBuf,
    process: Child,
}

impl LocalRun {
    /// Starts one, and waits until its gateway runs.
    fn start(name: &str) -> Self {
        let name = format!("fairgate-loadtest-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_fairgate-loadtest"))
            .args([
                "local",
                "config/scenarios/elephant-and-mice.yaml",
                "--report",
            ])
            .arg(directory.join("report"))
            .current_dir(root)
            .env("TMPDIR", &directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let run = Self { directory, process };
        run.wait_until(|run| run.gateways() > 0);
        run
    }

    /// Running gateways: processes whose configuration is in the directory.
    fn gateways(&self) -> usize {
        let directory = self.directory.to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        // Processes may end meanwhile.
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        lines
            .filter(|line| line.contains("--config") && line.contains(directory))
            .count()
    }

    fn temporary_directories(&self) -> usize {
        let entries = fs::read_dir(&self.directory).unwrap().flatten();
        entries
            .filter(|entry| entry.file_name() != "report")
            .count()
    }

    fn wait_until(&self, happened: impl Fn(&Self) -> bool) {
        for _ in 0..LOOKS {
            if happened(self) {
                return;
            }
            thread::sleep(POLL);
        }
        panic!("this should have happened by now");
    }

    /// Sends `signal`, waits for the end, and returns the exit code.
    fn end_by(&mut self, signal: Signal) -> Option<i32> {
        let id = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for LocalRun {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_signal_ends_the_processes_and_removes_the_files_of_a_load_test() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut run = LocalRun::start("signal");
        assert_eq!(run.temporary_directories(), 1);
        assert_eq!(run.end_by(signal), Some(code));
        assert_eq!(run.temporary_directories(), 0);
        run.wait_until(|run| run.gateways() == 0);
    }
}

#[test]
fn a_gateway_ends_when_its_load_test_is_killed() {
    let mut run = LocalRun::start("killed");
    assert_eq!(run.end_by(Signal::KILL), None);
    run.wait_until(|run| run.gateways() == 0);
}
