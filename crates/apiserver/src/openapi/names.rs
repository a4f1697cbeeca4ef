//! The names of schemas, operations and tags in OpenAPI documents.
//!
//! Clients find schemas by their extensions and operations by their paths, but code generators use these
//! names, so they are the same as in kube-apiserver.

use fairgate_objects::schema::TypePackage;

/// The prefix of schemas of `meta/v1`.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// A group and a version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupVersion<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
}

impl GroupVersion<'_> {
    /// Name of the schema of a type.
    pub(super) fn schema(self, home: TypePackage, name: &str) -> String {
        match home {
            TypePackage::Meta => meta(name),
            TypePackage::GroupVersion => format!("{}{name}", self.schemas()),
            TypePackage::Api { package, version } => {
                format!("io.k8s.api.{package}.{version}.{name}")
            }
        }
    }

    /// What names of schemas begin with.
    fn schemas(self) -> String {
        let package = match self.group.split('.').next() {
            None | Some("") => "core",
            Some(first) => first,
        };
        format!("io.k8s.api.{package}.{}.", self.version)
    }

    /// The path of the group version.
    pub(super) fn path(self) -> String {
        if self.group.is_empty() {
            format!("/api/{}/", self.version)
        } else {
            format!("/apis/{}/{}/", self.group, self.version)
        }
    }

    /// The tag of its operations, such as `flowcontrolApiserver_v1`.
    pub(super) fn tag(self) -> String {
        format!("{}_{}", group_tag(self.group), self.version)
    }

    /// Group and version inside the id of an operation, such as `FlowcontrolApiserverV1`.
    pub(super) fn operation(self) -> String {
        group_operation(self.group) + &capitalised(self.version)
    }
}

/// Name of the schema of a type of `meta/v1`.
pub(super) fn meta(name: &str) -> String {
    format!("{META}{name}")
}

/// The tag of a group's own operations, such as `flowcontrolApiserver`.
pub(super) fn group_tag(group: &str) -> String {
    let name = group_operation(group);
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

/// A group inside the id of an operation, such as `FlowcontrolApiserver`.
pub(super) fn group_operation(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    group
        .strip_suffix(".k8s.io")
        .unwrap_or(group)
        .split(|letter: char| !letter.is_alphanumeric())
        .map(capitalised)
        .collect()
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
