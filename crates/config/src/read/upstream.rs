//! Reads `upstream`: the API server behind the gateway.

use super::{
    headers::prefix,
    pem_files::{authorities, certificate_and_key, read_file},
    servers::{servers, written_server_name},
};
use crate::{
    bearer_token::BearerTokenFile,
    config::{SpreadConfig, UpstreamConfig, UpstreamIdentityConfig},
    section::{ConfigSection, default_of},
    url::UpstreamUrl,
    values::{self, InvalidValue, Keyword},
};

/// The default of `upstream.url`.
pub(super) fn default_url() -> UpstreamUrl {
    default_of("upstream.url")
}

pub(super) fn upstream(section: &mut ConfigSection<'_>) -> UpstreamConfig {
    let url = section.get("url");
    let servers = servers(section);
    UpstreamConfig {
        // What is asked of the one upstream is asked of the first server.
        url: servers.first().map_or(url, |first| first.url.clone()),
        servers,
        spread: section.get("spread"),
        authorities: authorities(section, "caFile"),
        tls_server_name: server_name(section),
        client_certificate: section.section("clientCertificate", certificate_and_key),
        token: bearer_token(section),
        identity: section.section("identity", upstream_identity),
        protocol: section.get("protocol"),
        max_streams: section.get("maxStreams"),
        max_connections: section.get("maxConnections"),
    }
}

fn server_name(section: &mut ConfigSection<'_>) -> Option<String> {
    let name = section.get_with("tlsServerName", written_server_name);
    (!name.is_empty()).then_some(name)
}

/// The gateway's bearer token, if the file contains a valid one.
fn bearer_token(section: &mut ConfigSection<'_>) -> Option<BearerTokenFile> {
    let path = section.path("tokenFile")?;
    read_file(section, "tokenFile", &path, |contents| {
        BearerTokenFile::new(&path, contents)
    })
}

fn upstream_identity(section: &mut ConfigSection<'_>) -> UpstreamIdentityConfig {
    let mode = section.get("mode");
    let username = section.get("usernameHeader");
    let uid = section.get("uidHeader");
    let group = section.get("groupHeader");
    let extra_prefix = section.get_with("extraHeaderPrefix", |value| prefix(&values::text(value)?));
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
    section.get_with("gatewayUser", |value| {
        let name = values::text(value)?;
        if !name.is_empty() && name.trim() == name && !name.chars().any(char::is_control) {
            return Ok(name);
        }
        Err(InvalidValue::new(
            format!("{name:?} is not a user name"),
            "write a name without leading or trailing spaces",
        ))
    })
}

impl Keyword for SpreadConfig {
    const WORDS: &'static [(&'static str, Self)] =
        &[("connection", Self::Connection), ("request", Self::Request)];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentityMode {
    Impersonate,
    RequestHeader,
}

impl Keyword for IdentityMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("impersonate", Self::Impersonate),
        ("requestHeader", Self::RequestHeader),
    ];
}
