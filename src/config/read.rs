//! From the file as written to a [`Config`]: every key with its notation, range and default.
//!
//! The only place with defaults; `config/fairgate.yaml` repeats each with its reason, and a test
//! holds the two together.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::HeaderName;
use serde_json::{Map, Value};

use super::{
    AdminConfig, AnonymousConfig, AuthenticationConfig, Authorities, CertificateAndKey, Config,
    ConfigError, DrainConfig, EnforcementConfig, EtcdConfig, FlowControlConfig, GatewayMode,
    HostedApiConfig, LimitsConfig, ListenConfig, LogConfig, LogFormat, LogLevel, ProtocolConfig,
    RequestHeaderConfig, Secret, StoreConfig, TimeoutsConfig, TokenFileConfig, TokenReviewConfig,
    UpstreamConfig, UpstreamIdentityConfig, UpstreamUrl, pem,
    section::{ConfigReader, ConfigSection},
    validate,
    values::{self, InvalidValue, Keyword},
};
use fairgate_core::{
    apf::{objects::Bootstrap, policy::Semantics},
    finding::Finding,
};
use fairgate_manifest::{read_bounded, yaml};
use fairgate_proxy::auth::{self, TokenKey};

/// The API version of the file.
const API_VERSION: &str = "fairgate.dev/v1alpha1";
/// The kind of the file.
const KIND: &str = "Configuration";

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What came of reading a configuration: also a broken one, for reports.
#[derive(Debug)]
pub struct ConfigReading {
    /// The settings; defaults stand in for what is broken.
    pub config: Config,
    /// Everything wrong with the file; usable unless there is an error among it.
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
    /// Reads the disk: not for a data core. Never fails; what is wrong is in the [`ConfigReading`].
    pub fn read(path: Option<&Path>) -> ConfigReading {
        let Some(path) = path else {
            return Self::from_values(ConfigReader::new("built-in defaults", ""), Map::new());
        };
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        let mut walk = ConfigReader::new(path.display().to_string(), directory);
        let entries = match read_bounded(path) {
            Ok(text) => document(&mut walk, &text),
            Err(error) => {
                walk.error(
                    "",
                    format!("cannot be read: {error}"),
                    "check the path and its permissions",
                );
                Map::new()
            }
        };
        Self::from_values(walk, entries)
    }

    /// Reads a configuration from `text`, known as `file` in findings; relative paths begin at
    /// `directory`.
    pub fn parse(file: &str, directory: &Path, text: &[u8]) -> ConfigReading {
        let mut walk = ConfigReader::new(file, directory);
        let entries = document(&mut walk, text);
        Self::from_values(walk, entries)
    }

    fn from_values(mut walk: ConfigReader, entries: Map<String, Value>) -> ConfigReading {
        let mut config = walk.root(entries, read);
        validate::validate(&mut walk, &config);
        config.effective = walk.effective;
        ConfigReading {
            config,
            findings: walk.findings,
        }
    }
}

/// Every key with how its value is written, and its range.
pub(super) fn notations() -> BTreeMap<String, (String, Option<String>)> {
    let mut walk = ConfigReader::new("built-in defaults", "");
    walk.root(Map::new(), read);
    walk.notations
}

/// The one object a configuration file holds, its type checked and taken off.
fn document(walk: &mut ConfigReader, text: &[u8]) -> Map<String, Value> {
    let documents = match yaml::documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            walk.error("", error.to_string(), "mend the file's syntax");
            return Map::new();
        }
    };
    let mut documents = documents.into_iter();
    let (first, further) = (documents.next(), documents.next());
    if further.is_some() {
        walk.error(
            "",
            "the file holds more than one document",
            "keep one Configuration; policy objects belong into flowControl.policies.directory",
        );
    }
    let Some(Value::Object(mut entries)) = first else {
        walk.error(
            "",
            "the file holds no object",
            format!("begin it with apiVersion: {API_VERSION} and kind: {KIND}"),
        );
        return Map::new();
    };
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let problem = match entries.remove(key) {
            Some(Value::String(value)) if value == expected => continue,
            Some(value) => format!("{value} is not known"),
            None => "missing".to_owned(),
        };
        walk.error(key, problem, format!("write {key}: {expected}"));
    }
    entries
}

fn read(root: &mut ConfigSection<'_>) -> Config {
    let upstream = root.section("upstream", upstream);
    let names_upstream = root.walk.is_set("upstream.url") && upstream.url != default_upstream();
    let mode = root.word("mode", GatewayMode::Files);
    let has_upstream = mode != GatewayMode::Standalone || names_upstream;
    let listen = root.section("listen", listen);
    let authority = if has_upstream {
        upstream.url.authority()
    } else {
        listen.address.to_string()
    };
    Config {
        mode,
        has_upstream,
        hosted_api: root.section("hostedApi", hosted_api),
        store: root.section("store", store),
        listen,
        authentication: root.section("authentication", |s| authentication(s, mode)),
        upstream,
        flow_control: root.section("flowControl", flow_control),
        limits: root.section("limits", limits),
        timeouts: root.section("timeouts", timeouts),
        data_cores: NonZeroU32::new(root.ranged("dataCores", 0, &(0..=1024), values::count)),
        admin: root.section("admin", |admin| AdminConfig {
            address: admin.get("address", ([127, 0, 0, 1], 9080).into(), values::address),
        }),
        log: root.section("log", |log| LogConfig {
            format: log.word("format", LogFormat::Text),
            level: log.word("level", LogLevel::Info),
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
        tls: section.section("tls", identity),
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
        min_read_rate: bytes(section, "minReadRate", 128 << 10, 1 << 30),
    }
}

/// Bytes, from none to `most`.
fn bytes(section: &mut ConfigSection<'_>, key: &'static str, default: u64, most: u64) -> u64 {
    section.ranged(key, default, &(0..=most), values::bytes)
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

fn authentication(section: &mut ConfigSection<'_>, mode: GatewayMode) -> AuthenticationConfig {
    AuthenticationConfig {
        client_certificate: section.section("clientCertificate", |s| authorities(s, "caFile")),
        request_header: section.section("requestHeader", request_header),
        token_file: token_file(section),
        token_review: section.section("tokenReview", token_review),
        anonymous: section.section("anonymous", |s| anonymous(s, mode)),
    }
}

fn request_header(section: &mut ConfigSection<'_>) -> Option<RequestHeaderConfig> {
    let authorities = authorities(section, "caFile");
    let allowed_names = section.get("allowedNames", Vec::new(), values::texts);
    let mut headers = |key, default: &'static str| {
        section.get(key, vec![HeaderName::from_static(default)], |value| {
            values::texts(value)?
                .iter()
                .map(|name| header(name))
                .collect()
        })
    };
    let username_headers = headers("usernameHeaders", "x-remote-user");
    let uid_headers = headers("uidHeaders", "x-remote-uid");
    let group_headers = headers("groupHeaders", "x-remote-group");
    let extra_header_prefixes = section.get(
        "extraHeaderPrefixes",
        vec![EXTRA_PREFIX.to_owned()],
        |value| {
            values::texts(value)?
                .iter()
                .map(|name| prefix(name))
                .collect()
        },
    );
    Some(RequestHeaderConfig {
        authorities: authorities?,
        allowed_names,
        username_headers,
        uid_headers,
        group_headers,
        extra_header_prefixes,
    })
}

fn token_file(section: &mut ConfigSection<'_>) -> Option<TokenFileConfig> {
    let path = section.path("tokenFile")?;
    let field = section.field("tokenFile");
    let contents = section.walk.contents(&field, &path)?;
    validate_tokens(section.walk, &field, &path, &contents);
    Some(TokenFileConfig {
        path,
        contents: Secret::new(Arc::from(contents)),
    })
}

/// Tells the mistakes in a token file, by their lines and without the tokens.
fn validate_tokens(walk: &mut ConfigReader, field: &str, path: &Path, contents: &[u8]) {
    // Without random bytes nothing can be hashed; whoever starts the gateway will tell.
    let Ok(key) = TokenKey::random() else { return };
    let path = path.display();
    match auth::TokenTable::parse(contents, &key) {
        Ok((_, warnings)) => {
            for warning in warnings {
                let remedy = "remove the line that has no effect";
                walk.warning(field, format!("{path}: {warning}"), remedy);
            }
        }
        Err(errors) => {
            for error in errors {
                let remedy = "write lines of token,user,uid,\"group1,group2\"";
                walk.error(field, format!("{path}: {error}"), remedy);
            }
        }
    }
}

fn token_review(section: &mut ConfigSection<'_>) -> Option<TokenReviewConfig> {
    let enabled = section.get("enabled", true, values::flag);
    let audiences = section.get("audiences", Vec::new(), values::texts);
    let timeout = section.ranged(
        "timeout",
        10 * SECOND,
        &(MS..=60 * SECOND),
        values::duration,
    );
    let mut ttl = |key, default, most| {
        section.ranged(key, default, &(Duration::ZERO..=most), values::duration)
    };
    let review = TokenReviewConfig {
        audiences,
        timeout,
        cache_ttl: ttl("cacheTTL", 10 * SECOND, 120 * SECOND),
        refusal_ttl: ttl("refusalTTL", 10 * SECOND, 120 * SECOND),
    };
    enabled.then_some(review)
}

fn anonymous(section: &mut ConfigSection<'_>, mode: GatewayMode) -> AnonymousConfig {
    let enabled = section.get("enabled", true, values::flag);
    let mut open = vec!["/livez", "/readyz", "/healthz"];
    if mode == GatewayMode::Standalone {
        // It is this gateway's own, and for anybody; elsewhere the upstream may see it otherwise.
        open.push("/version");
    }
    let open = open.into_iter().map(str::to_owned).collect();
    let paths = section.get("paths", open, |value| {
        let paths = values::texts(value)?;
        match paths
            .iter()
            .find(|path| *path != "*" && !path.starts_with('/'))
        {
            Some(path) => Err(InvalidValue::new(
                format!("{path:?} is not a path"),
                "begin every path with /, or write [\"*\"] for all",
            )),
            None => Ok(paths),
        }
    });
    match paths {
        _ if !enabled => AnonymousConfig::Refused,
        paths if paths.iter().any(|path| path == "*") => AnonymousConfig::Everywhere,
        paths if paths.is_empty() => AnonymousConfig::Refused,
        paths => AnonymousConfig::Paths(paths),
    }
}

fn default_upstream() -> UpstreamUrl {
    UpstreamUrl {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 8001,
    }
}

fn upstream(section: &mut ConfigSection<'_>) -> UpstreamConfig {
    UpstreamConfig {
        url: section.get("url", default_upstream(), url),
        authorities: authorities(section, "caFile"),
        tls_server_name: server_name(section),
        client_certificate: section.section("clientCertificate", identity),
        token_file: bearer_token(section),
        identity: section.section("identity", upstream_identity),
        protocol: section.word("protocol", ProtocolConfig::Auto),
        max_streams: section.ranged("maxStreams", 100, &(1..=100_000), values::count),
        max_connections: section.ranged("maxConnections", 512, &(1..=100_000), values::count),
    }
}

fn server_name(section: &mut ConfigSection<'_>) -> Option<String> {
    let name = section.get("tlsServerName", String::new(), |value| {
        let name = values::text(value)?;
        if name.is_empty() || rustls::pki_types::ServerName::try_from(name.as_str()).is_ok() {
            return Ok(name);
        }
        Err(InvalidValue::new(
            format!("{name:?} is neither a DNS name nor an IP address"),
            "write the name the upstream's certificate bears",
        ))
    });
    (!name.is_empty()).then_some(name)
}

/// The path of the gateway's bearer token, once what it holds has proven to be one.
fn bearer_token(section: &mut ConfigSection<'_>) -> Option<PathBuf> {
    let path = section.path("tokenFile")?;
    let field = section.field("tokenFile");
    match read_bounded(&path) {
        Ok(token) if is_bearer_token(token.trim_ascii()) => {}
        Ok(_) => section.walk.error(
            &field,
            format!("{} does not hold one token", path.display()),
            "write the token and nothing else into it",
        ),
        Err(error) => section.walk.error(
            &field,
            format!("{} cannot be read: {error}", path.display()),
            "check the path, which begins at the configuration file, and its permissions",
        ),
    }
    Some(path)
}

fn is_bearer_token(token: &[u8]) -> bool {
    !token.is_empty() && token.iter().all(u8::is_ascii_graphic)
}

fn upstream_identity(section: &mut ConfigSection<'_>) -> UpstreamIdentityConfig {
    let mode = section.word("mode", IdentityMode::Impersonate);
    let mut name = |key, default: &'static str| {
        section.get(key, HeaderName::from_static(default), |value| {
            header(&values::text(value)?)
        })
    };
    let username = name("usernameHeader", "x-remote-user");
    let uid = name("uidHeader", "x-remote-uid");
    let group = name("groupHeader", "x-remote-group");
    let extra_prefix = section.get("extraHeaderPrefix", EXTRA_PREFIX.to_owned(), |value| {
        prefix(&values::text(value)?)
    });
    let gateway_user = gateway_user(section);
    match mode {
        IdentityMode::Impersonate => UpstreamIdentityConfig::Impersonate,
        IdentityMode::RequestHeader => UpstreamIdentityConfig::RequestHeader {
            gateway_user,
            username,
            uid,
            group,
            extra_prefix,
        },
    }
}

fn gateway_user(section: &mut ConfigSection<'_>) -> String {
    section.get("gatewayUser", "fairgate".to_owned(), |value| {
        let name = values::text(value)?;
        if !name.is_empty() && name.trim() == name && !name.chars().any(char::is_control) {
            return Ok(name);
        }
        Err(InvalidValue::new(
            format!("{name:?} is not a user name"),
            "write a name without blanks at its ends",
        ))
    })
}

fn hosted_api(section: &mut ConfigSection<'_>) -> HostedApiConfig {
    HostedApiConfig {
        kubernetes_version: section.get(
            "kubernetesVersion",
            "v1.36.3".to_owned(),
            kubernetes_version,
        ),
        reader_groups: section.get("readerGroups", Vec::new(), values::texts),
        authorized_ttl: section.ranged(
            "authorizedTTL",
            300 * SECOND,
            &(Duration::ZERO..=HOUR),
            values::duration,
        ),
        unauthorized_ttl: section.ranged(
            "unauthorizedTTL",
            30 * SECOND,
            &(Duration::ZERO..=HOUR),
            values::duration,
        ),
    }
}

/// `v1.36.3`: what clients parse as a semantic version.
fn kubernetes_version(value: &Value) -> Result<String, InvalidValue> {
    let text = values::text(value)?;
    let numbers = text.strip_prefix('v').map(|rest| rest.split('.'));
    let is_version = numbers.is_some_and(|numbers| {
        let numbers: Vec<&str> = numbers.collect();
        let is_number = |part: &&str| {
            !part.is_empty() && part.len() < 6 && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        numbers.len() == 3 && numbers.iter().all(is_number)
    });
    if is_version {
        return Ok(text);
    }
    Err(InvalidValue::new(
        format!("{text:?} is not the version of a Kubernetes"),
        "write it as v1.36.3",
    ))
}

fn store(section: &mut ConfigSection<'_>) -> StoreConfig {
    let kind = section.word("type", StoreKind::Local);
    let path = section.section("local", |local| {
        let path = local.path("path");
        path.unwrap_or_else(|| local.walk.beside("fairgate.redb"))
    });
    let etcd = section.section("etcd", etcd);
    match kind {
        StoreKind::Local => StoreConfig::Local { path },
        StoreKind::Etcd => {
            if !cfg!(feature = "etcd") {
                let field = section.field("type");
                section.walk.error(
                    &field,
                    "this fairgate was built without etcd",
                    "build it with --features etcd, or use local",
                );
            }
            if etcd.endpoints.is_empty() {
                let field = section.field("etcd.endpoints");
                section.walk.error(
                    &field,
                    "empty",
                    "name at least one, such as https://etcd-0:2379",
                );
            }
            StoreConfig::Etcd(etcd)
        }
    }
}

fn etcd(section: &mut ConfigSection<'_>) -> EtcdConfig {
    let endpoints = section.get("endpoints", Vec::new(), endpoints);
    let prefix = section.get("prefix", "/fairgate".to_owned(), etcd_prefix);
    let ca = section.path("caFile");
    let authorities_pem = ca.and_then(|path| {
        let field = section.field("caFile");
        section.walk.contents(&field, &path)
    });
    let client_pem = section.section("clientCertificate", pem_pair);
    let user = section.text("user");
    let password = section.path("passwordFile").and_then(|path| {
        let field = section.field("passwordFile");
        section.walk.contents(&field, &path)
    });
    let password = password.map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    if user.is_empty() != password.is_none() {
        let field = section.field("user");
        section.walk.error(
            &field,
            "user and passwordFile belong together",
            "set both, or neither",
        );
    }
    EtcdConfig {
        endpoints,
        prefix,
        authorities_pem,
        client_pem,
        user: password
            .filter(|_| !user.is_empty())
            .map(|password| (user, Secret::new(password))),
        compaction: section.get("compaction", false, values::flag),
    }
}

fn endpoints(value: &Value) -> Result<Vec<String>, InvalidValue> {
    let endpoints = values::texts(value)?;
    let wrong = endpoints
        .iter()
        .find(|endpoint| UpstreamUrl::parse(endpoint).is_none());
    match wrong {
        None => Ok(endpoints),
        Some(endpoint) => Err(InvalidValue::new(
            format!("{endpoint:?} is not the address of a server"),
            "write it as https://host:2379",
        )),
    }
}

fn etcd_prefix(value: &Value) -> Result<String, InvalidValue> {
    let prefix = values::text(value)?;
    let rest = prefix.strip_prefix('/').unwrap_or_default();
    let is_path = !rest.is_empty() && rest.split('/').all(|segment| !segment.is_empty());
    if is_path && rest != "registry" && !rest.starts_with("registry/") {
        return Ok(prefix);
    }
    Err(InvalidValue::new(
        format!("{prefix:?} cannot be the prefix"),
        "write a path such as /fairgate; /registry belongs to kube-apiserver",
    ))
}

/// Certificate and key as they stand in the files, if given.
fn pem_pair(section: &mut ConfigSection<'_>) -> Option<(Vec<u8>, Secret<Vec<u8>>)> {
    let paths = (section.path("certFile"), section.path("keyFile"));
    let (Some(cert), Some(key)) = paths else {
        if paths.0.is_some() || paths.1.is_some() {
            let field = section.field("certFile");
            section.walk.error(
                &field,
                "certFile and keyFile belong together",
                "set both, or neither",
            );
        }
        return None;
    };
    let fields = [section.field("certFile"), section.field("keyFile")];
    let cert = section.walk.contents(&fields[0], &cert)?;
    let key = section.walk.contents(&fields[1], &key)?;
    Some((cert, Secret::new(key)))
}

fn flow_control(section: &mut ConfigSection<'_>) -> FlowControlConfig {
    let semantics = section.word("semantics", Semantics::Improved);
    let period = match semantics {
        Semantics::Compatible => 10 * SECOND,
        Semantics::Improved => 100 * MS,
    };
    FlowControlConfig {
        enforcement: section.word("enforcement", EnforcementConfig::Enforce),
        semantics,
        total_seats: section.ranged("totalSeats", 600, &(1..=10_000_000), values::count),
        hash_key: hash_key(section),
        bootstrap: section.word("bootstrap", Bootstrap::Suggested),
        policies: section.section("policies", policies),
        borrowing_period: section
            .get("borrowingPeriod", None, |value| match value.as_str() {
                Some("") => Ok(None),
                _ => values::duration(value).and_then(|period| match period {
                    p if (100 * MS..=HOUR).contains(&p) => Ok(Some(p)),
                    _ => Err(InvalidValue::new(
                        format!("{value} is out of range"),
                        "write a value from 100ms to 1h",
                    )),
                }),
            })
            .unwrap_or(period),
    }
}

fn policies(section: &mut ConfigSection<'_>) -> Option<PathBuf> {
    let path = section.path("directory")?;
    if !path.is_dir() {
        let field = section.field("directory");
        section.walk.error(
            &field,
            format!("{} is not a directory that can be read", path.display()),
            "make it, or check the path, which begins at the configuration file",
        );
    }
    Some(path)
}

/// The hash key, from the file itself or from one it names. Its digits are in no message.
fn hash_key(section: &mut ConfigSection<'_>) -> Option<Secret<[u8; 16]>> {
    let wrong = || {
        InvalidValue::new(
            "not a key",
            "write 32 hex digits, as `openssl rand -hex 16` prints",
        )
    };
    let key = |text: &str| parse_hash_key(text).map(Secret::new).ok_or_else(wrong);
    let inline = section.get("hashKey", None, |value| match value.as_str() {
        Some("") => Ok(None),
        Some(text) => key(text).map(Some),
        None => Err(wrong()),
    });
    let path = section.path("hashKeyFile");
    let field = section.field("hashKeyFile");
    if let (Some(_), Some(_)) = (&inline, &path) {
        section.walk.error(
            &field,
            "a key is given in hashKey too",
            "keep one of the two",
        );
    }
    let Some(path) = path else { return inline };
    let contents = section.walk.contents(&field, &path)?;
    match str::from_utf8(&contents)
        .map_err(|_| wrong())
        .and_then(|text| key(text.trim()))
    {
        Ok(key) => Some(key),
        Err(InvalidValue { problem, remedy }) => {
            let problem = format!("{}: {problem}", path.display());
            section.walk.error(&field, problem, remedy);
            None
        }
    }
}

fn parse_hash_key(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

/// The authorities in the file under `key`, if one is given.
fn authorities(section: &mut ConfigSection<'_>, key: &'static str) -> Option<Authorities> {
    let path = section.path(key)?;
    read_pem(section, key, &path, pem::authorities)
}

/// The certificate and key in the files under `certFile` and `keyFile`, if given.
fn identity(section: &mut ConfigSection<'_>) -> Option<CertificateAndKey> {
    let paths = (section.path("certFile"), section.path("keyFile"));
    let (cert, key) = match paths {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) => return None,
        (cert, _) => {
            let (given, missing) = match cert {
                Some(_) => ("certFile", "keyFile"),
                None => ("keyFile", "certFile"),
            };
            let field = section.field(missing);
            section.walk.error(
                &field,
                format!("not set, though {given} is"),
                format!("set {missing} too, or neither"),
            );
            return None;
        }
    };
    let chain = read_pem(section, "certFile", &cert, pem::certificates);
    let secret = read_pem(section, "keyFile", &key, pem::private_key);
    let identity = pem::identity(chain?, secret?);
    identity
        .map_err(|wrong| say(section, "keyFile", &key, wrong))
        .ok()
}

fn read_pem<T>(
    section: &mut ConfigSection<'_>,
    key: &str,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, InvalidValue>,
) -> Option<T> {
    let field = section.field(key);
    let contents = section.walk.contents(&field, path)?;
    parse(&contents)
        .map_err(|wrong| say(section, key, path, wrong))
        .ok()
}

fn say(section: &mut ConfigSection<'_>, key: &str, path: &Path, wrong: InvalidValue) {
    let field = section.field(key);
    let problem = format!("{}: {}", path.display(), wrong.problem);
    section.walk.error(&field, problem, wrong.remedy);
}

/// What the names of headers with further attributes begin with, unless told otherwise.
const EXTRA_PREFIX: &str = "x-remote-extra-";

/// Headers that carry no identity, whatever a file says.
const RESERVED: [&str; 6] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "upgrade",
];

fn header(name: &str) -> Result<HeaderName, InvalidValue> {
    let wrong = |problem| {
        InvalidValue::new(
            format!("{name:?} {problem}"),
            "write a name such as X-Remote-User",
        )
    };
    let header = name
        .parse::<HeaderName>()
        .map_err(|_| wrong("is not a header name"))?;
    if RESERVED.contains(&header.as_str()) {
        return Err(wrong("has a meaning of its own"));
    }
    Ok(header)
}

fn prefix(name: &str) -> Result<String, InvalidValue> {
    header(name).map(|name| name.as_str().to_owned())
}

fn url(value: &Value) -> Result<UpstreamUrl, InvalidValue> {
    let text = values::text(value)?;
    UpstreamUrl::parse(&text).ok_or_else(|| {
        InvalidValue::new(
            format!("{text:?} is not the address of a server"),
            "write it as https://host:6443, without user, path or query",
        )
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentityMode {
    Impersonate,
    RequestHeader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreKind {
    Local,
    Etcd,
}

impl Keyword for StoreKind {
    const WORDS: &'static [(&'static str, Self)] = &[("local", Self::Local), ("etcd", Self::Etcd)];
}

impl Keyword for GatewayMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("files", Self::Files),
        ("standalone", Self::Standalone),
        ("overlay", Self::Overlay),
        ("sidecar", Self::Sidecar),
    ];
}

impl Keyword for IdentityMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("impersonate", Self::Impersonate),
        ("requestHeader", Self::RequestHeader),
    ];
}

impl Keyword for Semantics {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("Improved", Self::Improved),
        ("Compatible", Self::Compatible),
    ];
}

impl Keyword for EnforcementConfig {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("enforce", Self::Enforce),
        ("observe", Self::Observe),
        ("off", Self::Off),
    ];
}

impl Keyword for Bootstrap {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("suggested", Self::Suggested),
        ("mandatory", Self::Mandatory),
    ];
}

impl Keyword for ProtocolConfig {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("http1", Self::Http1),
        ("http2", Self::Http2),
    ];
}

impl Keyword for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl Keyword for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}
