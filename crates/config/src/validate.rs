//! Validation across keys: contradictions between keys that are valid by themselves.
//!
//! A gateway that would refuse all clients, trust every client, or send secrets unencrypted is reported before
//! it starts. Not here: single keys (`read`).

use std::{fs, path::Path};

use fairgate_disruption::EvictionMode;

use crate::{
    config::{
        AnonymousConfig, AuthenticationConfig, Config, DisruptionControllerMode, GatewayMode,
        ProtocolConfig, UpstreamConfig, UpstreamIdentityConfig,
    },
    section::ConfigReader,
};

/// Reports contradictions between keys that are valid by themselves.
pub(super) fn validate(reader: &mut ConfigReader, config: &Config) {
    validate_listen(reader, config);
    validate_secure_admin(reader, config);
    validate_authentication(reader, config);
    if config.has_upstream {
        validate_upstream(reader, config);
        validate_watches(reader, config);
    }
    validate_mode(reader, config);
    validate_eviction(reader, config);
    validate_state(reader, config);
    if config.limits.header_bytes > config.limits.unfinished_header_bytes {
        reader.error(
            "limits.unfinishedHeaderBytes",
            "less than limits.headerBytes",
            "increase it, or decrease limits.headerBytes",
        );
    }
    if 2 * u64::from(config.limits.header_bytes) > config.limits.long_header_bytes {
        reader.error(
            "limits.longHeaderBytes",
            "less than twice limits.headerBytes",
            "increase it, or decrease limits.headerBytes",
        );
    }
    if 4 * u64::from(config.limits.header_bytes) > config.limits.token_review_bytes {
        reader.error(
            "limits.tokenReviewBytes",
            "less than four times limits.headerBytes",
            "increase it, or decrease limits.headerBytes",
        );
    }
    if config.limits.long_running_per_user > config.limits.long_running_total {
        reader.error(
            "limits.longRunningPerUser",
            "more than limits.longRunningTotal",
            "decrease it, or increase the total",
        );
    }
    if config.limits.watches_per_user > config.limits.watches_total {
        reader.error(
            "limits.watchesPerUser",
            "more than limits.watchesTotal",
            "decrease it, or increase the total",
        );
    }
    if config.limits.spool_per_answer > config.limits.spool_total {
        reader.error(
            "limits.spoolPerAnswer",
            "more than limits.spoolTotal",
            "decrease it, or increase the total",
        );
    }
}

/// What is kept must not be read as policies, which would then be invalid.
fn validate_state(reader: &mut ConfigReader, config: &Config) {
    let Some(state) = &config.state_directory else {
        return;
    };
    let absolute = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut policies = config
        .flow_control
        .policies
        .iter()
        .chain(&config.admission.files);
    if policies.any(|path| absolute(path) == absolute(state)) {
        reader.error(
            "state.directory",
            "policies are read from it, and what is kept there would be taken for one",
            "name another directory",
        );
    } else if state.exists() && !state.is_dir() {
        // The gateway runs nevertheless, and says what it could not keep.
        reader.warning(
            "state.directory",
            format!("{} is not a directory, so nothing is kept", state.display()),
            "name a directory, which is created if it does not exist",
        );
    }
}

/// Every watch needs an upstream stream. A tenth is left for watches that have ended but still keep theirs.
fn validate_watches(reader: &mut ConfigReader, config: &Config) {
    let upstream = &config.upstream;
    let may_share = match upstream.protocol {
        ProtocolConfig::Auto => upstream.url.tls,
        ProtocolConfig::Http1 => false,
        ProtocolConfig::Http2 => true,
    };
    let streams = u64::from(upstream.max_connections) * u64::from(upstream.max_streams);
    if may_share && u64::from(config.limits.watches_total) > streams / 10 * 9 {
        reader.error(
            "limits.watchesTotal",
            "more than 90 % of upstream.maxConnections times upstream.maxStreams: watches would be rejected earlier",
            "increase upstream.maxConnections, or decrease it",
        );
    }
}

/// Keys that a mode requires or ignores.
fn validate_mode(reader: &mut ConfigReader, config: &Config) {
    let directory = "flowControl.policies.directory";
    if config.mode != GatewayMode::Files && reader.is_set(directory) {
        reader.error(
            directory,
            "set, and policy objects are read from files only with mode: files",
            "remove it, or set mode to files",
        );
    }
    let readers = "hostedApi.readerGroups";
    if config.mode == GatewayMode::Overlay && !config.hosted_api.reader_groups.is_empty() {
        reader.warning(
            readers,
            "has no effect: with mode: overlay the upstream authorizes reads",
            "grant these groups the permission in the upstream, and remove it here",
        );
    }
    if config.mode.hosts() && !is_pair_set(reader, "listen.tls") {
        reader.warning(
            "listen.tls",
            "not set: kubectl sends no credentials over plain HTTP, so nobody could change a policy",
            "set listen.tls.certFile and keyFile",
        );
    }
}

/// Keys of waiting evictions that have no effect, or contradict each other.
fn validate_eviction_wait(reader: &mut ConfigReader, config: &Config) {
    let wait = &config.eviction.wait;
    let chosen = [
        ("eviction.wait.users", wait.users.is_empty()),
        ("eviction.wait.groups", wait.groups.is_empty()),
    ];
    if wait.total < wait.per_budget {
        reader.error(
            "eviction.wait.perBudget",
            "more than eviction.wait.total",
            "decrease it, or increase the total",
        );
    }
    // What cannot be read has been reported, and was meant to be something.
    if reader.has_error("eviction.wait.limit") {
        return;
    }
    if wait.limit.is_zero() {
        for (field, _) in chosen.iter().filter(|(_, is_empty)| !is_empty) {
            reader.warning(
                field,
                "has no effect: eviction.wait.limit is 0",
                "set eviction.wait.limit to how long evictions may wait, or remove it",
            );
        }
        return;
    }
    if config.eviction.mode != EvictionMode::Authoritative {
        reader.error(
            "eviction.wait.limit",
            "set, and only evictions that the gateway decides can wait",
            "set eviction.mode to authoritative, or remove it",
        );
    }
    if chosen.iter().all(|(_, is_empty)| *is_empty) {
        reader.error(
            "eviction.wait.limit",
            "set, and no evictions are chosen to wait",
            "list in eviction.wait.users or eviction.wait.groups whose evictions may wait, such as the group system:authenticated",
        );
    }
}

/// What evictions and the disruption controller need besides their own keys.
fn validate_eviction(reader: &mut ConfigReader, config: &Config) {
    validate_eviction_wait(reader, config);
    let evicts = config.eviction.mode != EvictionMode::Relay;
    let counts = config.eviction.controller == DisruptionControllerMode::On;
    let needs_upstream = [
        (
            evicts,
            "eviction.mode",
            "set upstream.url, or set it to relay",
        ),
        (
            counts,
            "eviction.controller",
            "set upstream.url, or set it to off",
        ),
    ];
    for (key, remedy) in needs_upstream
        .into_iter()
        .filter_map(|(needs, key, remedy)| needs.then_some((key, remedy)))
    {
        if !config.has_upstream {
            reader.error(key, "without an upstream there are no pods", remedy);
        } else if !config.upstream.url.tls && !reader.is_set("upstream.tokenFile") {
            reader.warning(
                key,
                "the gateway has no credential for the upstream, where it reads pods and budgets in its own name",
                "set upstream.tokenFile, or use https and upstream.clientCertificate",
            );
        }
    }
}

fn validate_listen(reader: &mut ConfigReader, config: &Config) {
    let Config { listen, admin, .. } = config;
    // With port 0, each gets a free port of its own.
    if listen.address == admin.address && listen.address.port() != 0 {
        reader.error(
            "admin.address",
            "the same as listen.address",
            "use another port",
        );
    }
    if is_pair_set(reader, "listen.tls") {
        return;
    }
    if !listen.address.ip().is_loopback() {
        reader.warning(
            "listen.tls",
            "not set, and listen.address is not a loopback address: tokens are sent unencrypted",
            "set listen.tls.certFile and keyFile, or listen on 127.0.0.1",
        );
    }
    for field in [
        "authentication.clientCertificate.caFile",
        "authentication.requestHeader.caFile",
    ] {
        if reader.is_set(field) && !is_pair_set(reader, "admin.secure.tls") {
            reader.error(
                field,
                "without listen.tls no client can present a certificate",
                "set listen.tls.certFile and keyFile, or remove it",
            );
        }
    }
}

/// The secure admin port needs an address and a certificate of its own, or the one that clients see.
fn validate_secure_admin(reader: &mut ConfigReader, config: &Config) {
    let Some(secure) = &config.admin.secure else {
        // An address that cannot be read has been reported, and was meant to be set.
        if is_pair_set(reader, "admin.secure.tls") && !reader.has_error("admin.secure.address") {
            reader.error(
                "admin.secure.tls",
                "set, and admin.secure.address is not",
                "set admin.secure.address, or remove it",
            );
        }
        return;
    };
    for (other, address) in [
        ("listen.address", config.listen.address),
        ("admin.address", config.admin.address),
    ] {
        if secure.address == address && address.port() != 0 {
            reader.error(
                "admin.secure.address",
                format!("the same as {other}"),
                "use another port",
            );
        }
    }
    if !is_pair_set(reader, "admin.secure.tls") && !is_pair_set(reader, "listen.tls") {
        reader.error(
            "admin.secure.tls",
            "not set, and neither is listen.tls: this port is served with TLS only",
            "set admin.secure.tls.certFile and keyFile",
        );
    }
}

/// Whether a file of the certificate and key under `section` is set.
fn is_pair_set(reader: &ConfigReader, section: &str) -> bool {
    ["certFile", "keyFile"]
        .iter()
        .any(|key| reader.is_set(&format!("{section}.{key}")))
}

fn validate_authentication(reader: &mut ConfigReader, config: &Config) {
    let AuthenticationConfig {
        client_certificate,
        request_header,
        token_review,
        anonymous,
        ..
    } = &config.authentication;
    let proven = reader.is_set("authentication.clientCertificate.caFile")
        || reader.is_set("authentication.requestHeader.caFile")
        || reader.is_set("authentication.tokenFile")
        || token_review.is_some();
    if !proven && *anonymous != AnonymousConfig::Everywhere {
        reader.warning(
            "authentication",
            "no authentication method is enabled, so nearly every request gets 401",
            "enable tokenReview, or set clientCertificate.caFile, requestHeader.caFile or tokenFile",
        );
    }
    let Some(proxy) = request_header else { return };
    for (key, is_empty, example) in [
        (
            "usernameHeaders",
            proxy.username_headers.is_empty(),
            "X-Remote-User",
        ),
        (
            "groupHeaders",
            proxy.group_headers.is_empty(),
            "X-Remote-Group",
        ),
        (
            "extraHeaderPrefixes",
            proxy.extra_header_prefixes.is_empty(),
            "X-Remote-Extra-",
        ),
    ] {
        if is_empty {
            let field = format!("authentication.requestHeader.{key}");
            reader.error(
                &field,
                "empty",
                format!("set at least one, such as {example}"),
            );
        }
    }
    let shared = client_certificate.as_ref().is_some_and(|clients| {
        let mut ours = proxy.authorities.certificates.iter();
        ours.any(|authority| clients.certificates.contains(authority))
    });
    if shared && proxy.allowed_names.is_empty() {
        reader.error(
            "authentication.requestHeader.allowedNames",
            "empty, and caFile shares a CA with clientCertificate.caFile: every client could impersonate any user",
            "list the proxy's common name, or better use a separate CA for the proxy",
        );
    } else if shared {
        reader.warning(
            "authentication.requestHeader.caFile",
            "shares a CA with clientCertificate.caFile: a client that gets a certificate with an allowed name can impersonate any user",
            "use a separate CA for the proxy",
        );
    }
}

fn validate_upstream(reader: &mut ConfigReader, config: &Config) {
    let upstream = &config.upstream;
    if reader.has_error("upstream.url") {
        // The default in its place says nothing about what is meant.
        return;
    }
    if config.listen.address.to_string() == upstream.url.authority() {
        reader.error(
            "upstream.url",
            "the gateway's own listen.address",
            "write the API server's address",
        );
    }
    let as_proxy = matches!(
        upstream.identity,
        UpstreamIdentityConfig::RequestHeader { .. }
    );
    let certificate = reader.is_set("upstream.clientCertificate.certFile")
        || reader.is_set("upstream.clientCertificate.keyFile");
    let token = reader.is_set("upstream.tokenFile");
    if as_proxy && !certificate {
        reader.error(
            "upstream.clientCertificate",
            "not set, but upstream.identity.mode is requestHeader: the upstream trusts the headers only with a client certificate",
            "set certFile and keyFile to a certificate signed by the upstream's requestheader client CA",
        );
    }
    if upstream.url.tls {
        validate_https(reader, config, certificate, token);
    } else {
        validate_http(reader, upstream, certificate, token);
    }
}

fn validate_https(reader: &mut ConfigReader, config: &Config, certificate: bool, token: bool) {
    let servers = &config.upstream.servers;
    let have_own = !servers.is_empty() && servers.iter().all(|server| server.has_authorities);
    if !reader.is_set("upstream.caFile") && !have_own {
        reader.error(
            "upstream.caFile",
            "not set, so the upstream's certificate cannot be verified",
            "set it to the CA of the API server's serving certificate",
        );
    }
    if !certificate && !token {
        reader.error(
            "upstream",
            "the gateway has no credential for the upstream",
            "set clientCertificate.certFile and keyFile, or tokenFile",
        );
    }
    if certificate && token {
        reader.warning(
            "upstream.tokenFile",
            "not used: the client certificate takes precedence",
            "keep one of clientCertificate and tokenFile",
        );
    }
}

fn validate_http(
    reader: &mut ConfigReader,
    upstream: &UpstreamConfig,
    certificate: bool,
    token: bool,
) {
    for (field, set) in [
        ("upstream.caFile", reader.is_set("upstream.caFile")),
        ("upstream.clientCertificate", certificate),
        ("upstream.tlsServerName", upstream.tls_server_name.is_some()),
    ] {
        // A file that cannot be read has been reported.
        let mut parts = [
            field.to_owned(),
            format!("{field}.certFile"),
            format!("{field}.keyFile"),
        ]
        .into_iter();
        if set && !parts.any(|part| reader.has_error(&part)) {
            reader.error(
                field,
                "set, and upstream.url is not https",
                "write https:// in upstream.url, or remove it",
            );
        }
    }
    if !upstream.url.is_loopback() {
        let carried = if token {
            "the gateway's token and "
        } else {
            ""
        };
        reader.warning(
            "upstream.url",
            format!("not https: {carried}every client's identity is sent unencrypted"),
            "write https:// and set upstream.caFile",
        );
    }
}
