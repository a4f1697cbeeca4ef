//! Reads `authentication`: how clients authenticate.

use std::{path::Path, sync::Arc};

use super::{headers::prefix, pem_files::authorities};
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
    let allowed_names = section.get("allowedNames");
    let username_headers = section.get("usernameHeaders");
    let uid_headers = section.get("uidHeaders");
    let group_headers = section.get("groupHeaders");
    let extra_header_prefixes = section.get_with("extraHeaderPrefixes", |value| {
        let prefixes = values::texts(value)?;
        prefixes.iter().map(|name| prefix(name)).collect()
    });
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
                // Such an error says what to do; this adds what a line looks like.
                let error = error.to_string();
                let (problem, remedy) = error.split_once("; ").unwrap_or((&error, "correct it"));
                let remedy = format!("{remedy}; a line is token,user,uid,\"group1,group2\"");
                reader.error(field, format!("{path}: {problem}"), remedy);
            }
        }
    }
}

fn token_review(section: &mut ConfigSection<'_>) -> Option<TokenReviewConfig> {
    let enabled: bool = section.get("enabled");
    let review = TokenReviewConfig {
        audiences: section.get("audiences"),
        timeout: section.get("timeout"),
        cache_ttl: section.get("cacheTTL"),
        refusal_ttl: section.get("refusalTTL"),
    };
    enabled.then_some(review)
}

fn anonymous(section: &mut ConfigSection<'_>, mode: GatewayMode) -> AnonymousConfig {
    let enabled: bool = section.get("enabled");
    let default = |mut open: Vec<String>| {
        if mode == GatewayMode::Standalone {
            // The gateway's own /version is public; an upstream may restrict its own.
            open.push("/version".to_owned());
        }
        open
    };
    let paths = section.get_or("paths", default, |value| {
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
