//! Conversion between versions of built-in kinds whose fields differ.
//!
//! A server that serves no alpha or beta versions has two such kinds: `Event` and `HorizontalPodAutoscaler`.
//!
//! Source: Kubernetes `pkg/apis/events/v1/conversion.go` and `pkg/apis/autoscaling/v1/conversion.go`.

mod autoscalers;
mod events;
mod metrics;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Value, json};

use crate::schema::{
    BuiltInKind, Struct, autoscaling_v1, autoscaling_v2,
    canonical::{self, TypeError},
    core_v1, events_v1,
};

/// How objects of one version become those of another.
pub struct BuiltInConversion {
    from: BuiltInKind,
    to: BuiltInKind,
    /// Gives an object in canonical form the fields of the other version; those that it has no more may remain.
    convert: fn(Value) -> Value,
}

static CONVERSIONS: [BuiltInConversion; 4] = [
    BuiltInConversion {
        from: CORE_EVENT,
        to: EVENT,
        convert: events::of_core,
    },
    BuiltInConversion {
        from: EVENT,
        to: CORE_EVENT,
        convert: events::to_core,
    },
    BuiltInConversion {
        from: autoscaler("v1", &autoscaling_v1::HORIZONTAL_POD_AUTOSCALER),
        to: autoscaler("v2", &autoscaling_v2::HORIZONTAL_POD_AUTOSCALER),
        convert: autoscalers::to_v2,
    },
    BuiltInConversion {
        from: autoscaler("v2", &autoscaling_v2::HORIZONTAL_POD_AUTOSCALER),
        to: autoscaler("v1", &autoscaling_v1::HORIZONTAL_POD_AUTOSCALER),
        convert: autoscalers::to_v1,
    },
];

const CORE_EVENT: BuiltInKind = BuiltInKind {
    group: "",
    version: "v1",
    kind: "Event",
    shape: &core_v1::EVENT,
};

const EVENT: BuiltInKind = BuiltInKind {
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    shape: &events_v1::EVENT,
};

const fn autoscaler(version: &'static str, shape: &'static Struct) -> BuiltInKind {
    BuiltInKind {
        group: "autoscaling",
        version,
        kind: "HorizontalPodAutoscaler",
        shape,
    }
}

fn parts(kind: &BuiltInKind) -> [&'static str; 3] {
    [kind.group, kind.version, kind.kind]
}

fn api_version(kind: &BuiltInKind) -> String {
    match kind.group {
        "" => kind.version.to_owned(),
        group => format!("{group}/{}", kind.version),
    }
}

impl fmt::Debug for BuiltInConversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, .. } = self;
        write!(
            f,
            "{} from {} to {}",
            from.kind,
            api_version(from),
            api_version(to)
        )
    }
}

impl BuiltInConversion {
    /// The conversion between two versions of a kind, each given by group, version and kind; `None` if there is none here.
    pub fn between(from: [&str; 3], to: [&str; 3]) -> Option<&'static Self> {
        let mut all = CONVERSIONS.iter();
        all.find(|one| parts(&one.from) == from && parts(&one.to) == to)
    }

    /// The object in the other version, in canonical form. No defaults are applied.
    ///
    /// Costs time and memory linear in the size of the object.
    ///
    /// # Errors
    ///
    /// It is not of the version that it is converted from.
    pub fn convert(&self, object: &Value) -> Result<Value, TypeError> {
        let Self { from, to, convert } = self;
        let object = canonical::decode_version(from.shape, from.version, object)?.value;
        let object = convert(object);
        let mut object = canonical::decode_version(to.shape, to.version, &object)?.value;
        object["apiVersion"] = json!(api_version(to));
        object["kind"] = json!(to.kind);
        Ok(object)
    }
}
