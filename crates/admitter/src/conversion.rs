//! Objects in another version than the one of the request: policies see the version that their rules name.
//!
//! Known are the built-in kinds that have several versions on servers without alpha and beta versions, and custom resources whose
//! versions have the same fields. Others are converted by code that only the upstream has.
//!
//! Source: Kubernetes `apiextensions-apiserver/pkg/apiserver/conversion/nop_converter.go`.

use std::sync::Arc;

use fairgate_objects::conversion::BuiltInConversion;
use serde_json::{Value, json};

use crate::{
    body_budget::{BodyShare, ReadFailure},
    facts::WriteFacts,
    upstream_objects::UpstreamReader,
};

/// Group, version and kind.
pub(crate) type KindParts = [String; 3];

/// The object and the old object of a request, in another version.
#[derive(Clone, Debug)]
pub(crate) struct ConvertedObjects {
    pub(crate) kind: KindParts,
    /// Or why they cannot be converted.
    pub(crate) objects: Result<[Option<Arc<Value>>; 2], String>,
}

/// How objects of one version become those of another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Conversion {
    /// All fields have the same names.
    SameFields,
    /// Of a built-in kind.
    BuiltIn(&'static BuiltInConversion),
}

/// Finds out how objects of a request are converted. For custom resources, their definition is read from the upstream.
///
/// The inner error is why they cannot be converted.
///
/// # Errors
///
/// The definition could not be read.
pub(crate) async fn conversion(
    upstream: &UpstreamReader,
    facts: &WriteFacts,
    to: &KindParts,
    share: BodyShare,
) -> Result<Result<Conversion, String>, ReadFailure> {
    let [group, _, kind] = &facts.kind;
    let [to_group, _, to_kind] = to;
    let [from_parts, to_parts] = [&facts.kind, to].map(|kind| kind.each_ref().map(|part| &**part));
    if let Some(built_in) = BuiltInConversion::between(from_parts, to_parts) {
        return Ok(Ok(Conversion::BuiltIn(built_in)));
    }
    if group != to_group || kind != to_kind || group != &facts.group {
        return Ok(Err("its fields differ".to_owned()));
    }
    let path = facts.definition_path();
    let Some(definition) = upstream.object(&path, share).await? else {
        return Ok(Err("it is no custom resource".to_owned()));
    };
    Ok(
        match definition.value["spec"]["conversion"]["strategy"].as_str() {
            None | Some("None") => Ok(Conversion::SameFields),
            Some(strategy) => Err(format!("its conversion strategy is {strategy}")),
        },
    )
}

impl Conversion {
    /// An object in the other version.
    ///
    /// # Errors
    ///
    /// It is not of the version that it is converted from.
    pub(crate) fn convert(
        self,
        object: &Value,
        [group, version, kind]: &KindParts,
    ) -> Result<Value, String> {
        match self {
            Self::BuiltIn(conversion) => {
                let converted = conversion.convert(object);
                converted.map_err(|error| error.to_string())
            }
            Self::SameFields => {
                let mut converted = object.clone();
                converted["apiVersion"] = json!(format!("{group}/{version}"));
                converted["kind"] = json!(kind);
                Ok(converted)
            }
        }
    }
}
