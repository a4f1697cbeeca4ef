//! Reads `authentication`: how clients authenticate.

use std::{path::Path, sync::Arc, time::Duration};

use http::HeaderName;

use super::{
    MS, SECOND,
    headers::{EXTRA_PREFIX, header, prefix},
    pem_files::authorities,
};
use crate::{
    config::{
        AnonymousConfig, AuthenticationConfig, GatewayMode, RequestHeaderConfig, TokenFileConfig,
        TokenReviewConfig,
    },
    secret::Secret,
    section::{ConfigReader, ConfigSection},
    values::{self, InvalidValue},
};
use fairgate_proxy::auth::{self, TokenKey};

pub(super) fn authentication(
    section: &mut ConfigSection<'_>,
    mode: GatewayMode,
) -> AuthenticationConfig {
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
    let contents = section.reader.contents(&field, &path)?;
    validate_tokens(section.reader, &field, &path, &contents);
    Some(TokenFileConfig {
        path,
        contents: Secret::new(Arc::from(contents)),
    })
}

/// Reports the errors in a token file by line, without the tokens.
fn validate_tokens(reader: &mut ConfigReader, field: &str, path: &Path, contents: &[u8]) {
    // Without random bytes nothing can be hashed; starting the gateway reports that.
    let Ok(key) = TokenKey::random() else { return };
    let path = path.display();
    match auth::TokenTable::parse(contents, &key) {
        Ok((_, warnings)) => {
            for warning in warnings {
                let remedy = "remove the line that has no effect";
                reader.warning(field, format!("{path}: {warning}"), remedy);
            }
        }
        Err(errors) => {
            for error in errors {
                let remedy = "write lines of token,user,uid,\"group1,group2\"";
                reader.error(field, format!("{path}: {error}"), remedy);
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
        // The gateway's own /version is public; an upstream may restrict its own.
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
