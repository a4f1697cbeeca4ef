//! Reads `upstream`: the API server behind the gateway.

use http::HeaderName;
use serde_json::Value;

use super::{
    headers::{EXTRA_PREFIX, header, prefix},
    pem_files::{authorities, certificate_and_key, read_file},
};
use crate::{
    bearer_token::BearerTokenFile,
    config::{ProtocolConfig, UpstreamConfig, UpstreamIdentityConfig},
    section::ConfigSection,
    url::UpstreamUrl,
    values::{self, InvalidValue, Keyword},
};

pub(super) fn default_upstream() -> UpstreamUrl {
    UpstreamUrl {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 8001,
    }
}

pub(super) fn upstream(section: &mut ConfigSection<'_>) -> UpstreamConfig {
    UpstreamConfig {
        url: section.get("url", default_upstream(), url),
        authorities: authorities(section, "caFile"),
        tls_server_name: server_name(section),
        client_certificate: section.section("clientCertificate", certificate_and_key),
        token: bearer_token(section),
        identity: section.section("identity", upstream_identity),
        protocol: section.keyword("protocol", ProtocolConfig::Auto),
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
            "write the name in the upstream's certificate",
        ))
    });
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
    let mode = section.keyword("mode", IdentityMode::Impersonate);
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
            "write a name without leading or trailing spaces",
        ))
    })
}

fn url(value: &Value) -> Result<UpstreamUrl, InvalidValue> {
    UpstreamUrl::parse(&values::text(value)?)
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
