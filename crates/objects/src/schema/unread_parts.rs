//! Parts of objects that need not be kept where nobody reads them.
//!
//! Policies often read little of an object: the images of its containers, and not their environment. [`UnreadParts`] are the parts that none
//! reads. They are checked as all others, so that the same bodies are refused, in the same words; those that are in order are then left out
//! of what was decoded.
//!
//! The table has only parts on which nothing outside of them depends: no default, and nothing that a server derives. Where something does, the
//! part counts as read if that is.

use super::{
    Struct,
    core_v1::{CONTAINER, EPHEMERAL_CONTAINER, POD_SPEC},
};

/// Where the specification of pods is in the objects that have one.
const POD_SPECS: [&[&str]; 4] = [
    &["spec"],
    &["template", "spec"],
    &["spec", "template", "spec"],
    &["spec", "jobTemplate", "spec", "template", "spec"],
];

/// The fields of that specification that list containers.
const CONTAINERS: [&str; 3] = ["containers", "ephemeralContainers", "initContainers"];

/// What has a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    PodSpec,
    Container,
}

/// The parts by owner and field, and another field of the owner that depends on it.
const PARTS: [(Owner, &str, Option<&str>); 15] = [
    // The default of the resources of a pod is the sum of its containers'.
    (Owner::PodSpec, "containers", Some("resources")),
    (Owner::PodSpec, "ephemeralContainers", Some("resources")),
    (Owner::PodSpec, "initContainers", Some("resources")),
    (Owner::PodSpec, "volumes", None),
    (Owner::Container, "args", None),
    (Owner::Container, "command", None),
    (Owner::Container, "env", None),
    (Owner::Container, "envFrom", None),
    (Owner::Container, "lifecycle", None),
    (Owner::Container, "livenessProbe", None),
    (Owner::Container, "ports", None),
    (Owner::Container, "readinessProbe", None),
    (Owner::Container, "startupProbe", None),
    (Owner::Container, "volumeDevices", None),
    (Owner::Container, "volumeMounts", None),
];

/// A set of parts that nobody reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreadParts(u32);

impl UnreadParts {
    /// No part: everything is kept.
    pub const NONE: Self = Self(0);

    /// All parts.
    pub const ALL: Self = Self((1 << PARTS.len()) - 1);

    /// Each part with a path at which an object has it, or something that depends on it; `*` is any element. A part may be at several paths. It is
    /// read if what is at one of them is.
    pub fn paths() -> impl Iterator<Item = (Self, Vec<&'static str>)> {
        PARTS.iter().enumerate().flat_map(|(at, part)| {
            let paths = POD_SPECS.iter().flat_map(|spec| paths_in(spec, *part));
            paths.map(move |path| (Self(1 << at), path))
        })
    }

    /// The parts that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The parts that are not in the other set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The parts that objects of this shape have themselves.
    pub(super) fn of(self, shape: &'static Struct) -> Self {
        if self == Self::NONE {
            return self;
        }
        let is = |other: &'static Struct| std::ptr::eq(shape, other);
        let owner = if is(&POD_SPEC) {
            Owner::PodSpec
        } else if is(&CONTAINER) || is(&EPHEMERAL_CONTAINER) {
            Owner::Container
        } else {
            return Self::NONE;
        };
        let parts = PARTS.iter().enumerate();
        let own = parts.filter(|(_, part)| part.0 == owner);
        self.and(Self(own.map(|(at, _)| 1 << at).sum()))
    }

    /// Whether a field is one of these, which have one owner.
    pub(super) fn has(self, field: &str) -> bool {
        let mut parts = PARTS.iter().enumerate();
        self != Self::NONE && parts.any(|(at, part)| self.0 & (1 << at) != 0 && part.1 == field)
    }
}

/// The paths of a part in objects whose specification of pods is at `spec`.
fn paths_in(
    spec: &'static [&'static str],
    (owner, field, dependent): (Owner, &'static str, Option<&'static str>),
) -> Vec<Vec<&'static str>> {
    match owner {
        Owner::PodSpec => {
            let fields = std::iter::once(field).chain(dependent);
            fields.map(|field| [spec, &[field]].concat()).collect()
        }
        Owner::Container => CONTAINERS
            .iter()
            .map(|list| [spec, &[*list, "*", field]].concat())
            .collect(),
    }
}
