//! Reads a file into a [`Config`]: every key as the type of its setting.
//!
//! Large sections have a file each. Not here: defaults and ranges ([`super::keys`]).

mod admission;
mod authentication;
mod fleet;
mod flow_control;
mod headers;
mod keywords;
mod pem_files;
mod servers;
mod store;
mod upstream;

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::Path};

use serde_json::{Map, Value, json};

use crate::{
    config::{
        AdminConfig, Config, DrainConfig, EvictionConfig, EvictionWaitConfig, GatewayMode,
        LimitsConfig, ListenConfig, LogConfig, SecureAdminConfig, TimeoutsConfig,
    },
    error::ConfigError,
    section::{ConfigReader, ConfigSection},
    validate, values, without_effect,
};
use fairgate_core::finding::Finding;
use fairgate_manifest::{read_bounded, yaml};

/// The API version of the file.
const API_VERSION: &str = "fairgate.dev/v1alpha1";

/// The kind of the file.
const KIND: &str = "Configuration";

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
    /// How the value of each key is written, such as `duration`, by the key's path; a list of words where there are few.
    pub fn notations() -> BTreeMap<String, String> {
        let mut reader = ConfigReader::new("built-in defaults", "");
        reader.root(Map::new(), read);
        reader.notations
    }

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
        servers::validate(&mut reader, &config);
        if let Some(seats) = servers::seats_together(&config.upstream.servers) {
            config.flow_control.total_seats = seats;
        }
        admission::validate(&mut reader, &config);
        fleet::validate(&mut reader, &config);
        config.effective = std::mem::take(&mut reader.effective);
        config.written = std::mem::take(&mut reader.written);
        without_effect::report(&mut reader, &config, &defaults_like(&config));
        ConfigReading {
            config,
            findings: reader.findings,
        }
    }
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
            Some(value) => format!("{} is not a known value", values::shown(&value)),
            None => "missing".to_owned(),
        };
        reader.error(key, problem, format!("write {key}: {expected}"));
    }
    entries
}

fn read(root: &mut ConfigSection<'_>) -> Config {
    let upstream = root.section("upstream", upstream::upstream);
    let mode = root.get("mode");
    // The sample configuration writes all defaults, so one that is written does not count as a choice.
    let has_upstream = mode != GatewayMode::Standalone
        || upstream.url != upstream::default_url()
        || !upstream.servers.is_empty();
    let listen = root.section("listen", listen);
    let authority = if has_upstream {
        upstream.url.authority()
    } else {
        listen.address.to_string()
    };
    let store = root.section("store", store::store);
    let fleet = root.section("fleet", |section| fleet::fleet(section, &store));
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
        fleet,
        eviction: root.section("eviction", |eviction| EvictionConfig {
            mode: eviction.get("mode"),
            controller: eviction.get("controller"),
            selector_terms: eviction.get("selectorTerms"),
            wait: eviction.section("wait", eviction_wait),
        }),
        admission: root.section("admission", admission::admission),
        limits: root.section("limits", limits),
        timeouts: root.section("timeouts", timeouts),
        data_cores: NonZeroU32::new(root.get("dataCores")),
        admin: root.section("admin", admin),
        log: root.section("log", |log| LogConfig {
            format: log.get("format"),
            level: log.get("level"),
            access: log.get("access"),
        }),
        apiserver: Some(root.get("apiserver"))
            .filter(|label: &String| !label.is_empty())
            .unwrap_or(authority),
        drain: root.section("drain", |drain| DrainConfig {
            delay: drain.get("delay"),
            grace: drain.get("grace"),
        }),
        effective: BTreeMap::new(),
        written: BTreeMap::new(),
    }
}

fn listen(section: &mut ConfigSection<'_>) -> ListenConfig {
    ListenConfig {
        address: section.get("address"),
        tls: section.section("tls", pem_files::certificate_and_key),
    }
}

fn admin(section: &mut ConfigSection<'_>) -> AdminConfig {
    AdminConfig {
        address: section.get("address"),
        hosts: section.get("hosts"),
        secure: section.section("secure", secure_admin),
        top_flows: section.get("topFlows"),
    }
}

fn secure_admin(section: &mut ConfigSection<'_>) -> Option<SecureAdminConfig> {
    let address: Option<SocketAddr> = section.get("address");
    let tls = section.section("tls", pem_files::certificate_and_key);
    address.map(|address| SecureAdminConfig { address, tls })
}

fn eviction_wait(section: &mut ConfigSection<'_>) -> EvictionWaitConfig {
    EvictionWaitConfig {
        limit: section.get("limit"),
        users: section.get("users"),
        groups: section.get("groups"),
        exempt_users: section.get("exemptUsers"),
        per_budget: section.get("perBudget"),
        total: section.get("total"),
        events: section.get("events"),
    }
}

fn limits(section: &mut ConfigSection<'_>) -> LimitsConfig {
    LimitsConfig {
        connections: section.get("connections"),
        streams_per_connection: section.get("streamsPerConnection"),
        queued_requests: section.get("queuedRequests"),
        long_running_per_user: section.get("longRunningPerUser"),
        long_running_total: section.get("longRunningTotal"),
        watches_per_user: section.get("watchesPerUser"),
        watches_total: section.get("watchesTotal"),
        header_bytes: bytes(section, "headerBytes"),
        unfinished_header_bytes: bytes(section, "unfinishedHeaderBytes"),
        spool_per_answer: section.get("spoolPerAnswer"),
        spool_total: section.get("spoolTotal"),
        response_budget: section.get("responseBudget"),
        min_read_rate: section.get("minReadRate"),
        unfinished_body_bytes: section.get("unfinishedBodyBytes"),
        queued_body_bytes: section.get("queuedBodyBytes"),
        long_header_bytes: section.get("longHeaderBytes"),
        token_review_bytes: section.get("tokenReviewBytes"),
        min_send_rate: section.get("minSendRate"),
    }
}

/// A number of bytes whose range fits 32 bits.
fn bytes(section: &mut ConfigSection<'_>, key: &'static str) -> u32 {
    u32::try_from(section.get::<u64>(key)).unwrap_or(u32::MAX)
}

fn timeouts(section: &mut ConfigSection<'_>) -> TimeoutsConfig {
    TimeoutsConfig {
        handshake: section.get("handshake"),
        header_read: section.get("headerRead"),
        idle: section.get("idle"),
        request: section.get("request"),
        body_idle: section.get("bodyIdle"),
        tunnel_idle: section.get("tunnelIdle"),
        upstream_connect: section.get("upstreamConnect"),
        upstream_idle: section.get("upstreamIdle"),
    }
}
