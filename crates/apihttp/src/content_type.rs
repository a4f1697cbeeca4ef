//! `Content-Type`: how a body is to be read. The header is empty if absent.
//!
//! Source: Kubernetes `apiserver/pkg/endpoints/handlers/negotiation/negotiate.go` and `handlers/patch.go`, and go-restful's `route.go`, the
//! router in front of these for built-in kinds.

use http::StatusCode;
use serde_json::json;

use crate::{
    negotiate::{MEDIA_TYPES, Media},
    status_error::StatusError,
};
use fairgate_gotext::{LONGEST_MEDIA_TYPE, media_type};

/// The media type of a body that is no patch.
///
/// # Errors
///
/// 415.
pub fn body_media(content_type: &str) -> Result<Media, StatusError> {
    // What nearly all bodies are need not be parsed.
    if content_type.is_empty() || content_type == Media::Json.name() {
        return Ok(Media::Json);
    }
    let name = media_type(content_type);
    name.and_then(|name| Media::named(&name))
        .ok_or_else(|| StatusError::unsupported_media_type(&MEDIA_TYPES))
}

/// The types of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7396.
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// All, in the order in which messages list them.
    const ALL: [Self; 4] = [Self::Json, Self::Merge, Self::Strategic, Self::Apply];
    /// Those of custom resources.
    const OF_CUSTOM: [Self; 3] = [Self::Json, Self::Merge, Self::Apply];

    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let is_it = |one: &Self| one.media_type() == name;
        Self::ALL.into_iter().find(is_it)
    }
}

/// The type of a patch of a built-in kind.
///
/// # Errors
///
/// 415.
pub fn patch_type(content_type: &str) -> Result<PatchType, StatusError> {
    let is_routed = content_type.len() <= LONGEST_MEDIA_TYPE
        && content_type.split(',').any(|one| {
            let name = one.split(';').next().unwrap_or_default().trim();
            PatchType::named(name).is_some()
        });
    if !is_routed {
        return Err(StatusError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )
        .with_details(json!({})));
    }
    handled_patch_type(content_type, &PatchType::ALL)
}

/// The type of a patch of a custom resource.
///
/// # Errors
///
/// 415.
pub fn custom_patch_type(content_type: &str) -> Result<PatchType, StatusError> {
    handled_patch_type(content_type, &PatchType::OF_CUSTOM)
}

/// 415 for a patch that custom resources do not have.
pub fn unsupported_custom_patch() -> StatusError {
    unsupported_patch(&PatchType::OF_CUSTOM)
}

fn unsupported_patch(types: &[PatchType]) -> StatusError {
    let names: Vec<&str> = types.iter().map(|one| one.media_type()).collect();
    StatusError::unsupported_media_type(&names)
}

/// What the handler behind the router reads: nothing is trimmed there.
fn handled_patch_type(content_type: &str, types: &[PatchType]) -> Result<PatchType, StatusError> {
    let name = match content_type.find(';') {
        Some(end) if end > 0 => &content_type[..end],
        _ => content_type,
    };
    // As for the types of other bodies.
    let is_short = content_type.len() <= LONGEST_MEDIA_TYPE;
    let found = PatchType::named(name).filter(|found| is_short && types.contains(found));
    found.ok_or_else(|| unsupported_patch(types))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_media_types_of_bodies_are_accepted() {
        assert_eq!(body_media("").unwrap(), Media::Json);
        let with_parameter = "Application/JSON; charset=utf-8";
        assert_eq!(body_media(with_parameter).unwrap(), Media::Json);
        for unknown in ["application/cbor", "application/json; charset", ";"] {
            assert!(body_media(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn a_type_that_is_longer_than_any_is_not_looked_through() {
        let parameters = |length: usize| {
            let apply = PatchType::Apply.media_type();
            format!("{apply}{}", ";a=1".repeat((length - apply.len()) / 4))
        };
        for read in [patch_type, custom_patch_type] {
            assert!(read(&parameters(LONGEST_MEDIA_TYPE)).is_ok());
            assert!(read(&parameters(LONGEST_MEDIA_TYPE + 8)).is_err());
        }
    }

    #[test]
    fn the_router_of_patches_trims_and_the_handler_does_not() {
        let apply = patch_type("application/apply-patch+yaml; charset=utf-8");
        assert_eq!(apply.unwrap(), PatchType::Apply);
        let message = |content_type: &str| patch_type(content_type).unwrap_err().message;
        assert_eq!(message("application/json"), "415: Unsupported Media Type");
        assert_eq!(message(""), "415: Unsupported Media Type");
        assert_eq!(message("*/*"), "415: Unsupported Media Type");
        for unread in [
            "application/merge-patch+json ;a=1",
            "application/merge-patch+json,x",
        ] {
            assert!(
                message(unread).starts_with("the body of the request was in an unknown format")
            );
        }
        let strategic = PatchType::Strategic.media_type();
        assert!(patch_type(strategic).is_ok() && custom_patch_type(strategic).is_err());
    }
}
