//! `fairgate serve` as a process of its own, for tests of what belongs to a process: its memory, its descriptors, its
//! log, and metrics that are global.

use std::{
    io::{BufRead as _, BufReader},
    mem::take,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fairgate_base::{clock::Clock, metrics_text};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};

use crate::client::{HANG, raw};

/// A gateway that is killed when this is dropped.
pub struct GatewayProcess {
    child: Child,
    /// Where it serves clients.
    pub address: SocketAddr,
    /// Where it serves operators.
    pub admin: SocketAddr,
    /// The same with TLS, if the configuration has `admin.secure`.
    pub secure_admin: Option<SocketAddr>,
    log: Arc<Mutex<Vec<String>>>,
    /// Where its configuration is.
    pub directory: PathBuf,
    /// What the shell does before it starts the gateway.
    before: String,
}

/// How a process is started.
#[derive(Default)]
pub struct ProcessOptions {
    /// The content of the file `tokens`, which the configuration may name.
    pub tokens: &'static str,
    /// Further files in the directory of the configuration: name and content.
    pub files: Vec<(&'static str, String)>,
    /// The limit on its descriptors.
    pub descriptors: Option<u32>,
    /// Whether a write over the limit of [`GatewayProcess::limit_files`] fails. Otherwise it would end the process.
    pub may_exceed_files: bool,
}

impl GatewayProcess {
    /// Starts a gateway with this configuration, which need not name a version, a kind or addresses.
    pub fn start(configuration: Value) -> Self {
        Self::with(configuration, &ProcessOptions::default())
    }

    pub fn with(mut configuration: Value, options: &ProcessOptions) -> Self {
        let directory = new_directory();
        for (key, value) in [
            ("apiVersion", json!("fairgate.dev/v1alpha1")),
            ("kind", json!("Configuration")),
        ] {
            configuration[key] = value;
        }
        for section in ["listen", "admin"] {
            configuration[section]["address"] = json!("127.0.0.1:0");
        }
        let path = directory.join("fairgate.yaml");
        std::fs::write(path, configuration.to_string()).unwrap();
        std::fs::write(directory.join("tokens"), options.tokens).unwrap();
        for (name, content) in &options.files {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let mut limit = options
            .descriptors
            .map_or(String::new(), |limit| format!("ulimit -n {limit} && "));
        if options.may_exceed_files {
            limit += "trap '' XFSZ && ";
        }
        Self::launch(directory, limit)
            .unwrap_or_else(|log| panic!("the gateway does not serve: {log:#?}"))
    }

    /// Starts it with the configuration in `directory`, which is removed if it does not serve. The lines of its log, then.
    fn launch(directory: PathBuf, before: String) -> Result<Self, Vec<String>> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{before}exec \"$1\" serve --config \"$2\""))
            .args(["sh", env!("CARGO_BIN_EXE_fairgate")])
            .arg(directory.join("fairgate.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let log = Arc::<Mutex<Vec<String>>>::default();
        let addresses = lines.find_map(|line| {
            let addresses = logged_addresses(&line);
            log.lock().unwrap().push(line);
            addresses
        });
        let Some([address, admin, secure_admin]) = addresses else {
            assert_eq!(child.wait().unwrap().code(), Some(1));
            let _ = std::fs::remove_dir_all(directory);
            return Err(std::mem::take(&mut *log.lock().unwrap()));
        };
        // The process would block if its log were not read.
        let keep = Arc::clone(&log);
        std::thread::spawn(move || lines.for_each(|line| keep.lock().unwrap().push(line)));
        Ok(Self {
            child,
            address: address.unwrap(),
            admin: admin.unwrap(),
            secure_admin,
            log,
            directory,
            before,
        })
    }

    /// Kills it, and starts it again in the same directory, to which `between` does something. The lines of its log if it does
    /// not serve.
    pub fn restart(mut self, between: impl FnOnce(&Path)) -> Result<Self, Vec<String>> {
        let (directory, before) = (take(&mut self.directory), take(&mut self.before));
        drop(self);
        between(&directory);
        Self::launch(directory, before)
    }

    /// Asks it to end, as a supervisor does. It drains first.
    pub fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Its exit code, once it has ended by itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Has it read its configuration again.
    pub fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Writes a file in the directory of the configuration.
    pub fn write(&self, name: &str, content: &str) {
        write_at_once(&self.directory.join(name), content);
    }

    /// From now on, it can write to files only up to this length, in bytes; none: as far as it likes.
    pub fn limit_files(&self, length: Option<u64>) {
        let limit = Rlimit {
            current: length,
            maximum: None,
        };
        let process = Pid::from_child(&self.child);
        prlimit(Some(process), Resource::Fsize, limit).unwrap();
    }

    /// A line of `/proc/PID/status` about memory, in MiB: `VmRSS` is the resident memory, `VmHWM` its maximum so far.
    pub fn mebibytes(&self, key: &str) -> usize {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kibibytes = line.unwrap().trim_matches([':', '\t', ' ', 'k', 'B']);
        kibibytes.parse::<usize>().unwrap() >> 10
    }

    /// The response, with its head, of the admin port to a `GET`.
    pub fn admin_get(&self, target: &str) -> String {
        get(self.admin, target)
    }

    /// The text of `/metrics`.
    pub fn metrics(&self) -> String {
        let response = self.admin_get("/metrics");
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        body.to_owned()
    }

    /// The value of a sample in `/metrics`, if there is such a sample.
    pub fn metric(&self, series: &str) -> Option<u64> {
        let text = self.metrics();
        let sample = metrics_text::samples(&text).find(|sample| sample.series == series)?;
        Some(sample.value.to_string().parse().unwrap())
    }

    /// The lines of its log so far that contain `text`. A line may come after the effect of what it tells, since a thread of
    /// its own writes the log: [`Self::wait_for_log`] waits for lines.
    pub fn logged(&self, text: &str) -> Vec<String> {
        let log = self.log.lock().unwrap();
        let lines = log.iter().filter(|line| line.contains(text));
        lines.cloned().collect()
    }

    /// The lines of its log that contain `text`, as soon as there are that many.
    pub fn wait_for_log(&self, text: &str, at_least: usize) -> Vec<String> {
        wait_until(
            &format!("the log has {at_least} lines with \"{text}\""),
            || self.logged(text).len() >= at_least,
        );
        self.logged(text)
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.directory.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

pub fn new_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("fairgate-process-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// The addresses in the log line that says that the gateway serves: for clients, for operators, and for operators
/// with TLS.
fn logged_addresses(line: &str) -> Option<[Option<SocketAddr>; 3]> {
    let value = |key: &str| {
        let (_, rest) = line.split_once(key)?;
        rest.split(' ').next().unwrap().parse().ok()
    };
    let addresses = [" address=", " admin=", " secure_admin="].map(value);
    (addresses[0].is_some() && addresses[1].is_some()).then_some(addresses)
}

/// The response, with its head, to a `GET` on a connection of its own.
pub fn get(address: SocketAddr, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    raw(address, request.as_bytes())
}

/// Writes a file in one step: a gateway that reads it meanwhile sees the old content or the new one, however long this process is
/// stopped.
pub fn write_at_once(path: &Path, content: &str) {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, content).unwrap();
    std::fs::rename(part, path).unwrap();
}

/// Waits until `holds`, and fails with `what` after [`HANG`].
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let clock = Clock::system();
    let end = clock.now().plus(HANG);
    while !holds() {
        assert!(clock.now() < end, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
