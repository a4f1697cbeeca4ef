//! Validation across keys: contradictions between keys that are valid by themselves.
//!
//! A gateway that would refuse all clients, trust every client, or send secrets unencrypted is reported before
//! it starts. Not here: single keys (`read`).

use super::{
    AnonymousConfig, AuthenticationConfig, Config, GatewayMode, ProtocolConfig, UpstreamConfig,
    UpstreamIdentityConfig, section::ConfigReader,
};

/// Reports contradictions between keys that are valid by themselves.
pub(super) fn validate(walk: &mut ConfigReader, config: &Config) {
    validate_listen(walk, config);
    validate_authentication(walk, config);
    if config.has_upstream {
        validate_upstream(walk, config);
        validate_watches(walk, config);
    }
    validate_mode(walk, config);
    if config.limits.header_bytes > config.limits.unfinished_header_bytes {
        walk.error(
            "limits.unfinishedHeaderBytes",
            "less than limits.headerBytes",
            "increase it, or decrease limits.headerBytes",
        );
    }
    if config.limits.long_running_per_user > config.limits.long_running_total {
        walk.error(
            "limits.longRunningPerUser",
            "more than limits.longRunningTotal",
            "decrease it, or increase the total",
        );
    }
    if config.limits.watches_per_user > config.limits.watches_total {
        walk.error(
            "limits.watchesPerUser",
            "more than limits.watchesTotal",
            "decrease it, or increase the total",
        );
    }
    if config.limits.spool_per_answer > config.limits.spool_total {
        walk.error(
            "limits.spoolPerAnswer",
            "more than limits.spoolTotal",
            "decrease it, or increase the total",
        );
    }
}

/// Every watch needs an upstream stream. A tenth is left for watches that have ended but still keep theirs.
fn validate_watches(walk: &mut ConfigReader, config: &Config) {
    let upstream = &config.upstream;
    let may_share = match upstream.protocol {
        ProtocolConfig::Auto => upstream.url.tls,
        ProtocolConfig::Http1 => false,
        ProtocolConfig::Http2 => true,
    };
    let streams = u64::from(upstream.max_connections) * u64::from(upstream.max_streams);
    if may_share && u64::from(config.limits.watches_total) > streams / 10 * 9 {
        walk.error(
            "limits.watchesTotal",
            "more than 90 % of upstream.maxConnections times upstream.maxStreams: watches would be rejected earlier",
            "increase upstream.maxConnections, or decrease it",
        );
    }
}

/// Keys that a mode requires or ignores.
fn validate_mode(walk: &mut ConfigReader, config: &Config) {
    let directory = "flowControl.policies.directory";
    if config.mode != GatewayMode::Files && walk.is_set(directory) {
        walk.error(
            directory,
            "has no effect: policy objects are read from files only with mode: files",
            "remove it, or set mode to files",
        );
    }
    let readers = "hostedApi.readerGroups";
    if config.mode == GatewayMode::Overlay && !config.hosted_api.reader_groups.is_empty() {
        walk.warning(
            readers,
            "has no effect: with mode: overlay the upstream authorizes reads",
            "grant these groups the permission in the upstream, and remove it here",
        );
    }
    if config.mode.hosts() && config.listen.tls.is_none() {
        walk.warning(
            "listen.tls",
            "not set: kubectl sends no credentials over plain HTTP, so nobody could change a policy",
            "set listen.tls.certFile and keyFile",
        );
    }
}

fn validate_listen(walk: &mut ConfigReader, config: &Config) {
    let Config { listen, admin, .. } = config;
    if listen.address == admin.address && listen.address.port() != 0 {
        walk.error(
            "admin.address",
            "the same as listen.address",
            "use another port",
        );
    }
    if walk.is_set("listen.tls.certFile") || walk.is_set("listen.tls.keyFile") {
        return;
    }
    if !listen.address.ip().is_loopback() {
        walk.warning(
            "listen.tls",
            "not set, and listen.address is not a loopback address: tokens are sent unencrypted",
            "set listen.tls.certFile and keyFile, or listen on 127.0.0.1",
        );
    }
    for field in [
        "authentication.clientCertificate.caFile",
        "authentication.requestHeader.caFile",
    ] {
        if walk.is_set(field) {
            walk.error(
                field,
                "without listen.tls no client can present a certificate",
                "set listen.tls.certFile and keyFile, or remove it",
            );
        }
    }
}

fn validate_authentication(walk: &mut ConfigReader, config: &Config) {
    let AuthenticationConfig {
        client_certificate,
        request_header,
        token_review,
        anonymous,
        ..
    } = &config.authentication;
    let proven = walk.is_set("authentication.clientCertificate.caFile")
        || walk.is_set("authentication.requestHeader.caFile")
        || walk.is_set("authentication.tokenFile")
        || token_review.is_some();
    if !proven && *anonymous != AnonymousConfig::Everywhere {
        walk.warning(
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
            walk.error(
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
        walk.error(
            "authentication.requestHeader.allowedNames",
            "empty, and caFile shares a CA with clientCertificate.caFile: every client could impersonate any user",
            "list the proxy's common name, or better use a separate CA for the proxy",
        );
    } else if shared {
        walk.warning(
            "authentication.requestHeader.caFile",
            "shares a CA with clientCertificate.caFile: whoever gets a certificate with an allowed name can impersonate any user",
            "use a separate CA for the proxy",
        );
    }
}

fn validate_upstream(walk: &mut ConfigReader, config: &Config) {
    let upstream = &config.upstream;
    if config.listen.address.to_string() == upstream.url.authority() {
        walk.error(
            "upstream.url",
            "the gateway's own listen.address",
            "write the API server's address",
        );
    }
    let as_proxy = matches!(
        upstream.identity,
        UpstreamIdentityConfig::RequestHeader { .. }
    );
    let certificate = walk.is_set("upstream.clientCertificate.certFile")
        || walk.is_set("upstream.clientCertificate.keyFile");
    let token = walk.is_set("upstream.tokenFile");
    if as_proxy && !certificate {
        walk.error(
            "upstream.clientCertificate",
            "not set, but upstream.identity.mode is requestHeader: the upstream trusts the headers only with a client certificate",
            "set certFile and keyFile to a certificate signed by the upstream's requestheader client CA",
        );
    }
    if upstream.url.tls {
        validate_https(walk, certificate, token);
    } else {
        validate_http(walk, upstream, certificate, token);
    }
}

fn validate_https(walk: &mut ConfigReader, certificate: bool, token: bool) {
    if !walk.is_set("upstream.caFile") {
        walk.error(
            "upstream.caFile",
            "not set, so the upstream's certificate cannot be verified",
            "set it to the CA of the API server's serving certificate",
        );
    }
    if !certificate && !token {
        walk.error(
            "upstream",
            "the gateway has no credential for the upstream",
            "set clientCertificate.certFile and keyFile, or tokenFile",
        );
    }
    if certificate && token {
        walk.warning(
            "upstream.tokenFile",
            "not used: the client certificate takes precedence",
            "keep one of clientCertificate and tokenFile",
        );
    }
}

fn validate_http(
    walk: &mut ConfigReader,
    upstream: &UpstreamConfig,
    certificate: bool,
    token: bool,
) {
    for (field, set) in [
        ("upstream.caFile", walk.is_set("upstream.caFile")),
        ("upstream.clientCertificate", certificate),
        ("upstream.tlsServerName", upstream.tls_server_name.is_some()),
    ] {
        if set {
            walk.error(
                field,
                "has no effect: upstream.url is not https",
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
        walk.warning(
            "upstream.url",
            format!("not https: {carried}every client's identity is sent unencrypted"),
            "write https:// and set upstream.caFile",
        );
    }
}
