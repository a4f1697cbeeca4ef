//! Reads a file into a [`Config`]: every key with its notation, range and default.
//!
//! The only place with defaults; `config/fairgate.yaml` repeats each with its reason, and a test
//! compares the two. Large sections have a file each.

mod admission;
mod authentication;
mod flow_control;
mod headers;
mod keywords;
mod pem_files;
mod store;
mod upstream;

use std::{collections::BTreeMap, num::NonZeroU32, path::Path, time::Duration};

use serde_json::{Map, Value, json};

use crate::{
    config::{
        AdminConfig, Config, DisruptionControllerMode, DrainConfig, EvictionConfig,
        EvictionWaitConfig, GatewayMode, LimitsConfig, ListenConfig, LogConfig, LogFormat,
        LogLevel, SecureAdminConfig, TimeoutsConfig,
    },
    error::ConfigError,
    section::{ConfigReader, ConfigSection},
    validate, values, without_effect,
};
use fairgate_core::finding::Finding;
use fairgate_disruption::EvictionMode;
use fairgate_manifest::{read_bounded, yaml};

/// The API version of the file.
const API_VERSION: &str = "fairgate.dev/v1alpha1";

/// The kind of the file.
const KIND: &str = "Configuration";

const MS: Duration = Duration::from_millis(1);

const SECOND: Duration = Duration::from_secs(1);

const HOUR: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The result of reading a configuration, valid or not.
#[derive(Debug)]
pub struct ConfigReading {
    /// The settings, with defaults in the place of invalid values.
    pub config: Config,
    /// All errors and warnings; the settings are usable unless there is an error.
    pub findings: Vec<Finding>,
}

impl ConfigReading {
    /// The settings with the warnings about them.
    ///
    /// # Errors
    ///
    /// All findings, if at least one of them is an error.
    pub fn usable(self) -> Result<(Config, Vec<Finding>), ConfigError> {
        if self.findings.iter().any(Finding::is_error) {
            return Err(ConfigError {
                findings: self.findings,
            });
        }
        Ok((self.config, self.findings))
    }
}

impl Config {
    /// Reads the configuration at `path` and the files it names; without a path, the defaults.
    ///
    /// Reads from disk: not for a data core. Never fails; errors are in the [`ConfigReading`].
    pub fn read(path: Option<&Path>) -> ConfigReading {
        let Some(path) = path else {
            return Self::from_values(ConfigReader::new("built-in defaults", ""), Map::new());
        };
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        let mut reader = ConfigReader::new(path.display().to_string(), directory);
        let entries = match read_bounded(path) {
            Ok(text) => document(&mut reader, &text),
            Err(error) => {
                reader.error(
                    "",
                    format!("cannot be read: {error}"),
                    "check the path and its permissions",
                );
                Map::new()
            }
        };
        Self::from_values(reader, entries)
    }

    /// Reads a configuration from `text`, known as `file` in findings; relative paths begin at
    /// `directory`.
    pub fn parse(file: &str, directory: &Path, text: &[u8]) -> ConfigReading {
        let mut reader = ConfigReader::new(file, directory);
        let entries = document(&mut reader, text);
        Self::from_values(reader, entries)
    }

    fn from_values(mut reader: ConfigReader, entries: Map<String, Value>) -> ConfigReading {
        let mut config = reader.root(entries, read);
        validate::validate(&mut reader, &config);
        admission::validate(&mut reader, &config);
        config.effective = std::mem::take(&mut reader.effective);
        without_effect::report(&mut reader, &config, &defaults_like(&config));
        ConfigReading {
            config,
            findings: reader.findings,
        }
    }
}

/// The notation and range of every key.
pub(super) fn notations() -> BTreeMap<String, (String, Option<String>)> {
    let mut reader = ConfigReader::new("built-in defaults", "");
    reader.root(Map::new(), read);
    reader.notations
}

/// The effective values of a configuration that sets nothing but what other defaults follow from.
fn defaults_like(config: &Config) -> BTreeMap<String, String> {
    let mut reader = ConfigReader::new("built-in defaults", "");
    let entries = json!({
        "mode": values::word(config.mode),
        "flowControl": {"semantics": values::word(config.flow_control.semantics)},
    });
    let Value::Object(entries) = entries else {
        unreachable!("it is a mapping")
    };
    reader.root(entries, read);
    reader.effective
}

/// The object in a configuration file, without `apiVersion` and `kind`, which are checked.
fn document(reader: &mut ConfigReader, text: &[u8]) -> Map<String, Value> {
    let documents = match yaml::located_documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            reader.error("", error.to_string(), "correct the syntax");
            return Map::new();
        }
    };
    let mut documents = documents.into_iter();
    let (first, further) = (documents.next(), documents.next());
    if further.is_some() {
        reader.error(
            "",
            "the file contains more than one document",
            "keep one Configuration; put policy objects into flowControl.policies.directory",
        );
    }
    let first = first.map(|mut first| {
        let value = first.value.take();
        reader.locate(first);
        value
    });
    let Some(Value::Object(mut entries)) = first else {
        reader.error(
            "",
            "the file contains no object",
            format!("start it with apiVersion: {API_VERSION} and kind: {KIND}"),
        );
        return Map::new();
    };
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let problem = match entries.remove(key) {
            Some(Value::String(value)) if value == expected => continue,
            Some(value) => format!("{value} is not a known value"),
            None => "missing".to_owned(),
        };
        reader.error(key, problem, format!("write {key}: {expected}"));
    }
    entries
}

fn read(root: &mut ConfigSection<'_>) -> Config {
    let upstream = root.section("upstream", upstream::upstream);
    let default_url = upstream::default_upstream();
    let mode = root.keyword("mode", GatewayMode::Files);
    // The sample configuration writes all defaults, so one that is written does not count as a choice.
    let has_upstream = mode != GatewayMode::Standalone || upstream.url != default_url;
    let listen = root.section("listen", listen);
    let authority = if has_upstream {
        upstream.url.authority()
    } else {
        listen.address.to_string()
    };
    let store = root.section("store", store::store);
    let state_directory = root.section("state", |state| state.path("directory"));
    Config {
        mode,
        has_upstream,
        hosted_api: root.section("hostedApi", store::hosted_api),
        state_directory: state_directory.or_else(|| store::default_state(mode, &store)),
        store,
        listen,
        authentication: root.section("authentication", |s| {
            authentication::authentication(s, mode)
        }),
        upstream,
        flow_control: root.section("flowControl", flow_control::flow_control),
        eviction: root.section("eviction", |eviction| EvictionConfig {
            mode: eviction.keyword("mode", EvictionMode::Relay),
            controller: eviction.keyword("controller", DisruptionControllerMode::Off),
            selector_terms: eviction.ranged(
                "selectorTerms",
                100_000,
                &(1_000..=100_000_000),
                values::count,
            ),
            wait: eviction.section("wait", eviction_wait),
        }),
        admission: root.section("admission", admission::admission),
        limits: root.section("limits", limits),
        timeouts: root.section("timeouts", timeouts),
        data_cores: NonZeroU32::new(root.ranged("dataCores", 0, &(0..=1024), values::count)),
        admin: root.section("admin", admin),
        log: root.section("log", |log| LogConfig {
            format: log.keyword("format", LogFormat::Text),
            level: log.keyword("level", LogLevel::Info),
            access: log.get("access", false, values::flag),
        }),
        apiserver: Some(root.text("apiserver"))
            .filter(|label| !label.is_empty())
            .unwrap_or(authority),
        drain: root.section("drain", |drain| DrainConfig {
            delay: drain.ranged(
                "delay",
                5 * SECOND,
                &(Duration::ZERO..=HOUR),
                values::duration,
            ),
            grace: drain.ranged(
                "grace",
                60 * SECOND,
                &(Duration::ZERO..=DAY),
                values::duration,
            ),
        }),
        effective: BTreeMap::new(),
    }
}

fn listen(section: &mut ConfigSection<'_>) -> ListenConfig {
    ListenConfig {
        address: section.get("address", ([127, 0, 0, 1], 8443).into(), values::address),
        tls: section.section("tls", pem_files::certificate_and_key),
    }
}

fn admin(section: &mut ConfigSection<'_>) -> AdminConfig {
    AdminConfig {
        address: section.get("address", ([127, 0, 0, 1], 9080).into(), values::address),
        hosts: section.get("hosts", Vec::new(), values::texts),
        secure: section.section("secure", secure_admin),
        top_flows: section.ranged("topFlows", 5, &(0..=100), values::count),
    }
}

fn secure_admin(section: &mut ConfigSection<'_>) -> Option<SecureAdminConfig> {
    let address = section.get("address", None, values::optional_address);
    let tls = section.section("tls", pem_files::certificate_and_key);
    address.map(|address| SecureAdminConfig { address, tls })
}

fn eviction_wait(section: &mut ConfigSection<'_>) -> EvictionWaitConfig {
    EvictionWaitConfig {
        limit: section.ranged(
            "limit",
            Duration::ZERO,
            &(Duration::ZERO..=HOUR),
            values::duration,
        ),
        users: section.get("users", Vec::new(), values::texts),
        groups: section.get("groups", Vec::new(), values::texts),
        exempt_users: section.get("exemptUsers", Vec::new(), values::texts),
        per_budget: section.ranged("perBudget", 500, &(1..=100_000), values::count),
        total: section.ranged("total", 1_000, &(1..=100_000), values::count),
    }
}

fn limits(section: &mut ConfigSection<'_>) -> LimitsConfig {
    let mut count = |key, default, most| section.ranged(key, default, &(1..=most), values::count);
    LimitsConfig {
        connections: count("connections", 16_384, 1_000_000),
        streams_per_connection: count("streamsPerConnection", 250, 100_000),
        queued_requests: count("queuedRequests", 20_000, 10_000_000),
        long_running_per_user: count("longRunningPerUser", 500, 1_000_000),
        long_running_total: count("longRunningTotal", 5_000, 1_000_000),
        watches_per_user: count("watchesPerUser", 4_000, 10_000_000),
        watches_total: count("watchesTotal", 40_000, 10_000_000),
        header_bytes: header_bytes(section),
        unfinished_header_bytes: unfinished_header_bytes(section),
        spool_per_answer: bytes(section, "spoolPerAnswer", 1 << 20, 1 << 30),
        spool_total: bytes(section, "spoolTotal", 64 << 20, 1 << 40),
        response_budget: response_budget(section),
        min_read_rate: bytes(section, "minReadRate", 128 << 10, 1 << 30),
        unfinished_body_bytes: bytes(section, "unfinishedBodyBytes", 32 << 20, 1 << 40),
        min_send_rate: bytes(section, "minSendRate", 64 << 10, 1 << 30),
    }
}

/// A number of bytes, 0 to `most`.
fn bytes(section: &mut ConfigSection<'_>, key: &'static str, default: u64, most: u64) -> u64 {
    section.ranged(key, default, &(0..=most), values::bytes)
}

fn response_budget(section: &mut ConfigSection<'_>) -> u64 {
    let allowed = 1 << 20..=1 << 40;
    section.ranged("responseBudget", 64 << 20, &allowed, values::bytes)
}

fn header_bytes(section: &mut ConfigSection<'_>) -> u32 {
    let bytes = section.ranged("headerBytes", 1 << 20, &(8 << 10..=16 << 20), values::bytes);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn unfinished_header_bytes(section: &mut ConfigSection<'_>) -> u32 {
    let allowed = 1 << 20..=1 << 30;
    let bytes = section.ranged("unfinishedHeaderBytes", 64 << 20, &allowed, values::bytes);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn timeouts(section: &mut ConfigSection<'_>) -> TimeoutsConfig {
    let mut time = |key, default| section.ranged(key, default, &(MS..=DAY), values::duration);
    TimeoutsConfig {
        handshake: time("handshake", 10 * SECOND),
        header_read: time("headerRead", 32 * SECOND),
        idle: time("idle", 120 * SECOND),
        request: time("request", 60 * SECOND),
        body_idle: time("bodyIdle", 60 * SECOND),
        tunnel_idle: time("tunnelIdle", 4 * HOUR),
        upstream_connect: time("upstreamConnect", 5 * SECOND),
        upstream_idle: time("upstreamIdle", 60 * SECOND),
    }
}
