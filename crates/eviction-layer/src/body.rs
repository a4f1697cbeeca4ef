//! The body of an eviction: an `Eviction` of `policy/v1` or `policy/v1beta1`.

use fairgate_apihttp::{posted::PostOptions, status_error::StatusError};
use fairgate_disruption::procedure::{refusal::EvictionRefusal, request::EvictionRequest};
use fairgate_objects::{
    codec::{self, DecodeError, DecodedObject, EmptyValues, ExpectedType, FieldValidation},
    schema::{Struct, policy_v1, policy_v1beta1},
};

use crate::path::PodPlace;

const GROUP: &str = "policy";
const KIND: &str = "Eviction";
/// The versions of the group that have the kind, with its tables; the default version is the first.
const VERSIONS: [(&str, &Struct); 2] = [
    ("v1", &policy_v1::EVICTION),
    ("v1beta1", &policy_v1beta1::EVICTION),
];

/// The result of decoding a body, and the warnings about it.
#[derive(Debug)]
pub(crate) struct DecodedBody {
    pub(crate) request: Result<EvictionRequest, BodyRefusal>,
    pub(crate) warnings: Vec<String>,
}

/// Why a body is refused.
#[derive(Debug)]
pub(crate) enum BodyRefusal {
    /// It cannot be decoded.
    Undecodable(StatusError),
    /// It is an eviction, but an invalid one.
    Eviction(EvictionRefusal),
}

/// Decodes the body of a request to evict this pod. Costs time linear in its length.
pub(crate) fn decode(options: &PostOptions, place: &PodPlace, body: &[u8]) -> DecodedBody {
    let (decoded, warnings) = match decode_any(options, body) {
        Ok(body) => (Ok(body.value), body.problems),
        Err(error) => {
            let refusal = StatusError::bad_request(error.to_string());
            (Err(BodyRefusal::Undecodable(refusal)), error.problems)
        }
    };
    let request = decoded.and_then(|value| {
        EvictionRequest::new(&place.namespace, &place.pod, &options.dry_run, &value)
            .map_err(BodyRefusal::Eviction)
    });
    let silent = options.validation == FieldValidation::Ignore;
    DecodedBody {
        request,
        warnings: if silent { Vec::new() } else { warnings },
    }
}

/// Decodes an eviction of either version. If the body fits neither, the error is that of the default version.
fn decode_any(options: &PostOptions, body: &[u8]) -> Result<DecodedObject, DecodeError> {
    let decode = |(version, shape)| {
        let expect = ExpectedType {
            group: GROUP,
            version,
            kind: KIND,
            shape,
            scheme: codec::built_in_types(),
            empty: EmptyValues::Null,
        };
        let strict = options.validation == FieldValidation::Strict;
        codec::decode_body(options.format, body, &expect, strict)
    };
    decode(VERSIONS[0]).or_else(|error| decode(VERSIONS[1]).map_err(|_| error))
}

#[cfg(test)]
mod tests {
    use fairgate_objects::codec::{BodyFormat, envelope, protobuf};
    use serde_json::{Value, json};

    use super::*;

    fn options(format: BodyFormat) -> PostOptions {
        PostOptions {
            format,
            dry_run: Vec::new(),
            validation: FieldValidation::Warn,
        }
    }

    fn place() -> PodPlace {
        PodPlace {
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
        }
    }

    fn message(refusal: BodyRefusal) -> String {
        match refusal {
            BodyRefusal::Undecodable(error) => error.message,
            BodyRefusal::Eviction(refusal) => refusal.to_string(),
        }
    }

    fn refused(body: &Value) -> String {
        let decoded = decode(
            &options(BodyFormat::Json),
            &place(),
            body.to_string().as_bytes(),
        );
        message(decoded.request.unwrap_err())
    }

    #[test]
    fn both_versions_are_read_in_every_format_and_may_be_left_out() {
        for version in ["policy/v1", "policy/v1beta1", ""] {
            let mut body = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]}});
            if !version.is_empty() {
                body["apiVersion"] = json!(version);
                body["kind"] = json!("Eviction");
            }
            let sealed = envelope::seal(
                version,
                "Eviction",
                &protobuf::encode(&policy_v1::EVICTION, &body),
            );
            for (format, bytes) in [
                (BodyFormat::Json, body.to_string().into_bytes()),
                (BodyFormat::Yaml, codec::yaml::encode(&body).into_bytes()),
                (BodyFormat::Protobuf, sealed.clone()),
            ] {
                let decoded = decode(&options(format), &place(), &bytes);
                let request = decoded.request.unwrap();
                assert!(request.is_dry_run(), "{version} {format:?}");
                assert!(decoded.warnings.is_empty());
            }
        }
    }

    #[test]
    fn other_versions_and_kinds_are_refused() {
        let of = |version: &str, kind: &str| {
            refused(&json!({"apiVersion": version, "kind": kind, "metadata": {"name": "p"}}))
        };
        let text = of("policy/v2", "Eviction");
        assert!(
            text.starts_with("Eviction in version \"v2\" cannot be handled as a Eviction: ")
                && text.contains("policy/v2"),
            "{text}"
        );
        assert!(of("policy/v1", "Pod").contains("no kind \"Pod\""));
        assert!(
            of("apps/v1", "Deployment")
                .ends_with("converting (v1.Deployment) to (policy.Eviction): unknown conversion")
        );
        assert_eq!(
            of("v1", "Pod"),
            "Pod in version \"v1\" cannot be handled as a Eviction: converting (v1.Pod) to \
             (policy.Eviction): unknown conversion"
        );
    }

    #[test]
    fn unknown_fields_are_warned_about_or_refused() {
        let body = json!({"metadata": {"name": "p"}, "spec": 1}).to_string();
        let mut options = options(BodyFormat::Json);
        let decoded = decode(&options, &place(), body.as_bytes());
        assert_eq!(decoded.warnings, ["unknown field \"spec\""]);
        assert!(decoded.request.is_ok());
        options.validation = FieldValidation::Ignore;
        assert!(
            decode(&options, &place(), body.as_bytes())
                .warnings
                .is_empty()
        );
        options.validation = FieldValidation::Strict;
        let strict = decode(&options, &place(), body.as_bytes());
        let text = message(strict.request.unwrap_err());
        assert!(text.contains("strict decoding error"), "{text}");
    }

    #[test]
    fn hostile_bodies_are_refused() {
        for body in [
            json!([]),
            json!({"metadata": 1}),
            json!({"metadata": {"name": ["p"]}}),
            json!({"metadata": {"name": "p"}, "deleteOptions": []}),
            json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": "All"}}),
            json!({"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": "5"}}),
            json!({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": 1}}}),
            json!({"metadata": {"name": "q"}}),
            json!({"metadata": {"name": ""}}),
            json!({"metadata": {"name": "p", "namespace": "other"}}),
        ] {
            assert!(!refused(&body).is_empty(), "{body}");
        }
        for format in [BodyFormat::Json, BodyFormat::Yaml, BodyFormat::Protobuf] {
            for bytes in [&b""[..], b"\0", b"{", b"k8s\0\xff", &[0xff; 64]] {
                let decoded = decode(&options(format), &place(), bytes);
                assert!(decoded.request.is_err(), "{format:?} {bytes:?}");
            }
        }
    }
}
