//! Objects in another version than the one of the request: policies see the version that their rules name.
//!
//! Known are the built-in kinds that a server can serve in several versions, and custom resources whose versions have the same
//! fields. Others are converted by code that only the upstream has.
//!
//! Source: Kubernetes `apiextensions-apiserver/pkg/apiserver/conversion/nop_converter.go`.

use std::sync::Arc;

use fairgate_objects::conversion::BuiltInConversion;
use fairgate_upstream::path::push_segment;
use serde_json::{Value, json};

use crate::{
    limits::body_budget::{BodyShare, ReadFailure},
    object::objects::name_of,
    request::facts::WriteFacts,
    upstream::upstream_objects::UpstreamReader,
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
    BuiltIn(BuiltInConversion),
}

/// What is needed to convert the objects of a request.
#[derive(Debug)]
pub(crate) struct FoundConversion {
    pub(crate) conversion: Conversion,
    /// The old object in the other version, if that was read.
    pub(crate) stored: Option<Value>,
}

/// Finds out how the objects of a request are converted, and reads what that takes from the upstream.
///
/// `serves_definitions` is whether the upstream has custom resources at all. The inner error is why they cannot be converted.
///
/// # Errors
///
/// The definition of a custom resource, or the stored object, could not be read.
pub(crate) async fn find(
    upstream: &UpstreamReader,
    facts: &WriteFacts,
    old: Option<&Value>,
    to: &KindParts,
    serves_definitions: bool,
    share: BodyShare,
) -> Result<Result<FoundConversion, String>, ReadFailure> {
    let another = share.another();
    let conversion = match conversion(upstream, facts, to, serves_definitions, share).await? {
        Ok(conversion) => conversion,
        Err(why) => return Ok(Err(why)),
    };
    let stored = match old.filter(|_| conversion.is_from_narrower()) {
        Some(old) => stored(upstream, facts, old, to, another).await?,
        None => None,
    };
    Ok(Ok(FoundConversion { conversion, stored }))
}

/// How objects are converted. For custom resources, their definition is read.
async fn conversion(
    upstream: &UpstreamReader,
    facts: &WriteFacts,
    to: &KindParts,
    serves_definitions: bool,
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
    let read = match upstream.object(&path, share).await {
        Err(ReadFailure::NotServed(_)) if !serves_definitions => None,
        read => read?,
    };
    let Some(definition) = read else {
        return Ok(Err("it is no custom resource".to_owned()));
    };
    Ok(
        match definition.value["spec"]["conversion"]["strategy"].as_str() {
            None | Some("None") => Ok(Conversion::SameFields),
            Some(strategy) => Err(format!("its conversion strategy is {strategy}")),
        },
    )
}

/// The stored object in the other version as the upstream has it. `None` if it is not any more the one that was read as `old`.
async fn stored(
    upstream: &UpstreamReader,
    facts: &WriteFacts,
    old: &Value,
    [group, version, _]: &KindParts,
    share: BodyShare,
) -> Result<Option<Value>, ReadFailure> {
    let mut path = format!("/apis/{group}/{version}");
    for (prefix, segment) in [
        ("/namespaces/", &*facts.namespace),
        (&*format!("/{}/", facts.resource), name_of(old)),
    ] {
        path.push_str(prefix);
        push_segment(&mut path, segment);
    }
    let read = upstream.object(&path, share).await?;
    let version = |of: &Value| of["metadata"]["resourceVersion"].clone();
    let stored = read.map(|stored| stored.value);
    Ok(stored.filter(|stored| version(stored) == version(old)))
}

impl Conversion {
    /// Whether a stored object has something that the version of the request lacks.
    fn is_from_narrower(self) -> bool {
        matches!(self, Self::BuiltIn(conversion) if conversion.is_from_narrower())
    }

    /// An object that is of the other version already, as policies see it.
    ///
    /// # Errors
    ///
    /// It is not of that version.
    pub(crate) fn read(self, object: Value) -> Result<Value, String> {
        match self {
            Self::BuiltIn(conversion) => {
                let read = conversion.read(&object);
                read.map_err(|error| error.to_string())
            }
            Self::SameFields => Ok(object),
        }
    }

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
