//! The gateway under test: a process of the fairgate binary, with a configuration of its own, and what
//! the operating system and its admin port report.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use fairgate_base::metrics_text::{self, MetricSample};
use fairgate_testkit::pki::{Authority, Leaf};
use serde_json::{Value, json};

use crate::time::{LIVENESS, now};

/// How long a gateway may take to start.
const START_LIMIT: Duration = LIVENESS;

/// Seats of [`ATTACKED`]'s level `attacked`.
pub(crate) const ATTACKED_SEATS: u32 = 20;
/// The total of seats with which every share is one seat.
const ATTACKED_TOTAL: u32 = 125;

/// A policy of two levels that neither lend nor borrow: `attacked` with 20 seats for the groups
/// `attackers` and `neighbours`, and `rest` with 100 for all others. Its shares are seats when the total is
/// 125, since the built-in `catch-all` has 5.
const ATTACKED: &str = include_str!("attacked.yaml");

/// A user that has a token: the token is the name.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) group: &'static str,
}

/// The user whose service must not suffer.
pub(crate) const VICTIM: &str = "victim";
/// The attacker, where one is enough.
pub(crate) const ATTACKER: &str = "attacker";
/// Who may do everything.
pub(crate) const ADMIN: &str = "admin";
/// A victim in the attacker's own priority level.
pub(crate) const NEIGHBOUR: &str = "neighbour";

/// How the gateway is configured.
#[derive(Default)]
pub(crate) struct Setup {
    /// Keys that differ from the base, in the form of the configuration file.
    pub(crate) config: Value,
    /// Whether the policy with the level `attacked` is in force instead of the suggested one.
    pub(crate) attacked_level: bool,
    /// More users of the group `attackers`, numbered from 0.
    pub(crate) more_attackers: usize,
    /// Descriptors that the process may have.
    pub(crate) descriptors: Option<u32>,
    pub(crate) tls: bool,
    /// Whether clients without a credential may request every path.
    pub(crate) anonymous: bool,
    /// Further files: path below the directory of the configuration, and content.
    pub(crate) files: Vec<(String, String)>,
}

/// The name and token of an additional attacker.
pub(crate) fn attacker(number: usize) -> String {
    format!("{ATTACKER}-{number}")
}

/// A running gateway. Dropping it stops the process and removes its files.
pub(crate) struct Gateway {
    process: Child,
    directory: PathBuf,
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// The port for operators.
    pub(crate) admin: SocketAddr,
    /// The same with TLS, if the configuration has `admin.secure`.
    pub(crate) secure_admin: Option<SocketAddr>,
}

impl Gateway {
    /// Starts a gateway in front of `upstream`, and waits until it serves.
    pub(crate) fn start(setup: &Setup, upstream: SocketAddr) -> Self {
        let directory = new_directory();
        let config = write_files(&directory, setup, upstream);
        let log = fs::File::create(directory.join("log")).unwrap();
        let mut command = match setup.descriptors {
            None => Command::new(program()),
            Some(limit) => {
                let mut shell = Command::new("bash");
                let script = format!("ulimit -n {limit} && exec \"$@\"");
                shell.args(["-c", &script, "bash"]).arg(program());
                shell
            }
        };
        let process = command
            .args(["serve", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .env("FAIRGATE_COUNT_TURNS", "1")
            .spawn()
            .expect("the gateway's program can be started");
        let mut gateway = Self {
            process,
            directory,
            address: SocketAddr::from(([0; 4], 0)),
            admin: SocketAddr::from(([0; 4], 0)),
            secure_admin: None,
        };
        gateway.wait();
        gateway
    }

    /// Waits for the log line with the addresses.
    fn wait(&mut self) {
        let begun = now();
        while begun.elapsed() < START_LIMIT {
            for line in self.log().lines() {
                let Ok(line) = serde_json::from_str::<Value>(line) else {
                    continue;
                };
                let address = |key: &str| find(&line, key)?.as_str()?.parse().ok();
                if let (Some(address), Some(admin)) = (address("address"), address("admin")) {
                    (self.address, self.admin) = (address, admin);
                    self.secure_admin =
                        find(&line, "secure_admin").and_then(|found| found.as_str()?.parse().ok());
                    return;
                }
            }
            assert!(
                self.process.try_wait().unwrap().is_none(),
                "the gateway ended:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the gateway does not serve:\n{}", self.log());
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Its memory, for another thread.
    pub(crate) fn memory(&self) -> Memory {
        Memory(PathBuf::from(format!("/proc/{}/status", self.process.id())))
    }

    /// The processor time it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.process.id());
        let Ok(tasks) = fs::read_dir(tasks) else {
            return Duration::ZERO;
        };
        let nanos = tasks.filter_map(|task| {
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// A scrape of its metrics.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics(http_get(self.admin, "/metrics", LIVENESS).unwrap_or_default())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::env::var_os("FAIRGATE_ATTACK_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// The value of a key, at whatever depth.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object
        .get(key)
        .or_else(|| object.values().find_map(|inner| find(inner, key)))
}

/// The binary under test.
fn program() -> PathBuf {
    let program = std::env::var_os("FAIRGATE_BIN").expect("FAIRGATE_BIN names the fairgate binary");
    PathBuf::from(program)
}

fn new_directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("fairgate-attack-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Writes the configuration and the files that it names. Returns its path.
fn write_files(directory: &Path, setup: &Setup, upstream: SocketAddr) -> PathBuf {
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    write("tokens.csv", &tokens(setup));
    for (path, content) in &setup.files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let mut config = json!({
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Configuration",
        "listen": {"address": "127.0.0.1:0"},
        "admin": {"address": "127.0.0.1:0"},
        "upstream": {"url": format!("http://{upstream}"), "protocol": "http2"},
        "authentication": {
            "tokenFile": "tokens.csv",
            "tokenReview": {"enabled": false},
            "anonymous": {"paths": if setup.anonymous { json!(["*"]) } else { json!(["/livez", "/readyz"]) }},
        },
        "dataCores": 2,
        "log": {"format": "json"},
        "drain": {"delay": "0s", "grace": "1s"},
    });
    if setup.attacked_level {
        fs::create_dir_all(directory.join("policies")).unwrap();
        write("policies/attacked.yaml", ATTACKED);
        let flow_control = json!({
            "totalSeats": ATTACKED_TOTAL,
            "bootstrap": "mandatory",
            "policies": {"directory": "policies"},
        });
        merge(&mut config, &json!({"flowControl": flow_control}));
    }
    if setup.tls {
        let (chain, key) = Authority::new("attack").issue_with_key(&Leaf::named("localhost"));
        write("cert.pem", &pem("CERTIFICATE", &chain[0]));
        write("key.pem", &pem("PRIVATE KEY", key.secret_der()));
        let tls = json!({"certFile": "cert.pem", "keyFile": "key.pem"});
        merge(&mut config, &json!({"listen": {"tls": tls}}));
    }
    merge(&mut config, &setup.config);
    if let Ok(more) = std::env::var("FAIRGATE_ATTACK_CONFIG") {
        let more = serde_json::from_str(&more).expect("FAIRGATE_ATTACK_CONFIG is JSON");
        merge(&mut config, &more);
    }
    write("fairgate.yaml", &config.to_string());
    directory.join("fairgate.yaml")
}

fn tokens(setup: &Setup) -> String {
    let named = [
        (VICTIM, "others"),
        (ATTACKER, "attackers"),
        (NEIGHBOUR, "neighbours"),
        (ADMIN, "system:masters"),
    ];
    let named = named.map(|(name, group)| User {
        name: name.to_owned(),
        group,
    });
    let numbered = (0..setup.more_attackers).map(|number| User {
        name: attacker(number),
        group: "attackers",
    });
    let line = |user: User| {
        format!(
            "{name},{name},{name},\"{}\"\n",
            user.group,
            name = user.name
        )
    };
    named.into_iter().chain(numbered).map(line).collect()
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let lines = lines.join("\n");
    format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
}

/// Merges `more` into `base`, key by key.
fn merge(base: &mut Value, more: &Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (base, more) => *base = more.clone(),
    }
}

/// The memory of a process.
pub(crate) struct Memory(PathBuf);

impl Memory {
    /// Its resident memory in bytes; 0 when it has ended.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(&self.0).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }
}

/// A scrape.
pub(crate) struct Metrics(String);

impl Metrics {
    /// The size of the scrape, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The sum over the series of the gateway's own metrics that `is_meant` selects by name and labels.
    pub(crate) fn sum(&self, is_meant: impl Fn(&str) -> bool) -> f64 {
        let own = self.own().filter(|sample| is_meant(sample.series));
        own.map(|sample| sample.value).sum()
    }

    /// The sum over the gateway's own series that contain one of `words`.
    pub(crate) fn about(&self, words: &[&str]) -> f64 {
        self.sum(|series| words.iter().any(|word| series.contains(word)))
    }

    /// The value of the gateway's own metric `name`; of all its series together.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.sum(|series| series.split('{').next() == Some(name))
    }

    /// The sum over the series of the metric `name` of a priority level.
    pub(crate) fn of_level(&self, name: &str, level: &str) -> f64 {
        let samples = metrics_text::samples(&self.0)
            .filter(|sample| sample.name == name && sample.label("priority_level") == Some(level));
        samples.map(|sample| sample.value).sum()
    }

    /// Whether the gateway has a series of its own that contains one of `words`.
    pub(crate) fn has(&self, words: &[&str]) -> bool {
        self.own()
            .any(|sample| words.iter().any(|word| sample.series.contains(word)))
    }

    /// The samples of the gateway's own metrics.
    fn own(&self) -> impl Iterator<Item = MetricSample<'_>> {
        metrics_text::samples(&self.0).filter(|sample| sample.name.starts_with("fairgate_"))
    }
}

/// Requests `path` on a connection of its own. Returns the body of a 200 that arrived in time.
pub(crate) fn http_get(address: SocketAddr, path: &str, limit: Duration) -> Option<String> {
    let begun = now();
    let mut stream = std::net::TcpStream::connect_timeout(&address, limit).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.set_write_timeout(Some(limit)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut piece = vec![0; 65_536];
    loop {
        let left = limit
            .checked_sub(begun.elapsed())
            .filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut piece).ok()? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}
