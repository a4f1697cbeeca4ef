//! The `TokenReview` that is sent, the result in the response, and how long the token itself claims to be valid.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use serde::Deserialize;

use super::{ReviewedToken, TokenRefused, TokenReviewError};
use fairgate_call::Identity;
use fairgate_core::digest::User;

/// The body of the request that has `token` reviewed, which is UTF-8.
pub(super) fn request(token: &str, audiences: &[String]) -> Result<Bytes, TokenReviewError> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.to_owned(),
            audiences: (!audiences.is_empty()).then(|| audiences.to_vec()),
        },
        ..TokenReview::default()
    };
    serde_json::to_vec(&review)
        .map(Bytes::from)
        .map_err(|error| malformed(&error))
}

/// The result in the body of a response.
///
/// A status with an error counts as a refusal: the upstream says why a token is invalid in the same field in
/// which a webhook reports that it could not check it, so the two cannot be distinguished.
pub(super) fn result(body: &[u8], audiences: &[String]) -> Result<ReviewedToken, TokenReviewError> {
    let review: TokenReview = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    let status = review.status.ok_or_else(|| TokenReviewError::Malformed {
        reason: "no status".into(),
    })?;
    let reason = status.error.unwrap_or_default();
    if !status.authenticated.unwrap_or_default() || !reason.is_empty() {
        return Ok(Err(TokenRefused::because(&reason)));
    }
    let overlap = |granted: &[String]| granted.iter().any(|a| audiences.contains(a));
    if !audiences.is_empty() && !overlap(&status.audiences.unwrap_or_default()) {
        return Ok(Err(TokenRefused::because(
            "the token is for other audiences",
        )));
    }
    let user = user(status.user.unwrap_or_default())?;
    Ok(Ok(Arc::new(Identity::authenticated(user))))
}

/// How long the token itself claims to be valid from now on, if it is a JWT that says so.
///
/// Nothing is verified: this can only shorten what the review granted.
pub(super) fn remaining(token: &[u8], wall: Duration) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Claims {
        exp: Option<f64>,
    }
    let mut parts = token.split(|&byte| byte == b'.');
    let (Some(_), Some(payload), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    let seconds = claims.exp? - wall.as_secs_f64();
    // An expiry too far away for a duration counts as no claim.
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

fn user(info: UserInfo) -> Result<User, TokenReviewError> {
    let name = info
        .username
        .filter(|name| !name.is_empty())
        .ok_or_else(|| TokenReviewError::Malformed {
            reason: "authenticated, but no user name".into(),
        })?;
    let extra: BTreeMap<String, Vec<String>> = info.extra.unwrap_or_default();
    Ok(User {
        name,
        uid: info.uid.unwrap_or_default(),
        groups: info.groups.unwrap_or_default(),
        extra,
    })
}

/// Says where parsing failed, but quotes nothing: the response repeats the token.
fn malformed(error: &serde_json::Error) -> TokenReviewError {
    let (line, column) = (error.line(), error.column());
    TokenReviewError::Malformed {
        reason: format!("not a TokenReview at line {line} column {column}").into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reviewed(status: &Value, audiences: &[&str]) -> Result<ReviewedToken, TokenReviewError> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {}, "spec": {"token": "hunter2"}, "status": status,
        });
        let audiences: Vec<_> = audiences.iter().map(|a| (*a).to_owned()).collect();
        result(body.to_string().as_bytes(), &audiences)
    }

    fn alice() -> Value {
        json!({"username": "alice", "uid": "42", "groups": ["dev", "system:authenticated"],
               "extra": {"example.com/k": ["v"]}})
    }

    fn jwt(claims: &str) -> Vec<u8> {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)).into_bytes()
    }

    #[test]
    fn the_review_has_the_fields_of_the_kubernetes_api() {
        let body = request("t", &["a".to_owned()]).unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(sent["apiVersion"], "authentication.k8s.io/v1");
        assert_eq!(sent["kind"], "TokenReview");
        assert_eq!(sent["spec"], json!({"token": "t", "audiences": ["a"]}));
        let body = request("t", &[]).unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(sent["spec"], json!({"token": "t"}));
    }

    #[test]
    fn an_accepted_token_names_its_user() {
        let identity = reviewed(&json!({"authenticated": true, "user": alice()}), &[])
            .unwrap()
            .unwrap();
        let mut expected = User::new("alice", ["dev", "system:authenticated"]);
        expected.uid = "42".into();
        expected
            .extra
            .insert("example.com/k".into(), vec!["v".into()]);
        assert_eq!(**identity.user(), expected);

        let bare = json!({"authenticated": true, "user": {"username": "bob"}});
        let identity = reviewed(&bare, &[]).unwrap().unwrap();
        assert_eq!(identity.user().groups, ["system:authenticated"]);
    }

    #[test]
    fn a_refusal_with_a_reason_is_a_refusal() {
        for status in [
            json!({}),
            json!({"authenticated": false}),
            json!({"authenticated": false, "error": "token lookup failed"}),
            json!({"authenticated": true, "error": "odd", "user": alice()}),
        ] {
            assert!(reviewed(&status, &[]).unwrap().is_err(), "{status}");
        }
        let refused = reviewed(&json!({"error": "token lookup failed"}), &[])
            .unwrap()
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "invalid bearer token: token lookup failed"
        );
    }

    #[test]
    fn requested_audiences_must_be_granted() {
        let verdict = |granted: Value| {
            let status = json!({"authenticated": true, "user": alice(), "audiences": granted});
            reviewed(&status, &["a", "b"]).unwrap().is_ok()
        };
        assert!(verdict(json!(["c", "b"])));
        assert!(!verdict(json!(["c"])));
        assert!(!verdict(json!([])));
        assert!(!verdict(json!(null)));
    }

    #[test]
    fn a_malformed_response_is_no_refusal_and_no_error_repeats_the_token() {
        let nameless = json!({"authenticated": true, "user": {"username": ""}});
        let odd = json!({"authenticated": "hunter2"});
        for status in [nameless, odd, json!(null)] {
            let error = reviewed(&status, &[]).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(result(b"<html>", &[]).is_err());
        assert!(result(br#"{"apiVersion":"v1","kind":"Status"}"#, &[]).is_err());
    }

    #[test]
    fn the_exp_claim_of_a_token_is_read() {
        let seconds = Duration::from_secs;
        for (claims, left) in [
            (r#"{"exp": 1010}"#, Some(seconds(10))),
            (r#"{"exp": 1010.5}"#, Some(Duration::from_millis(10_500))),
            (r#"{"exp": 999}"#, Some(seconds(0))),
            (r#"{"exp": -1e300}"#, Some(seconds(0))),
            (r#"{"exp": 1e300}"#, None),
            (r#"{"exp": "1010"}"#, None),
            (r#"{"iss": "x"}"#, None),
            ("not json", None),
        ] {
            assert_eq!(remaining(&jwt(claims), seconds(1000)), left, "{claims}");
        }
        for token in [
            &b"opaque"[..],
            b"a.b",
            b"a.!.c",
            b"a.eyJleHAiOjF9.c.d",
            b"..",
        ] {
            assert_eq!(remaining(token, Duration::from_secs(1000)), None);
        }
    }
}
