//! The paths and their operations: the model from which both documents are generated.
//!
//! Parameters that all operations of a path share belong to the path, as in kube-apiserver. No path shares
//! `fieldValidation` among all operations, so it stays at the patch, where kubectl looks for it. Status
//! codes are those that kube-apiserver publishes, some of which never occur.

use serde_json::{Value, json};

use super::{
    names::{GroupVersion, group_operation, group_tag, meta},
    parameters::{
        DELETE, DELETE_COLLECTION, LIST, NAME, NAMESPACE, PATCH, PRETTY, Parameter, WRITE,
    },
};
use crate::discovery::{groups, resources, versions};
use fairgate_objects::{
    kind::{Kind, Storage},
    schema::TypePackage,
};

/// Media types of objects.
pub(super) const OBJECTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// The media types of objects and of watches.
pub(super) const STREAMS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
/// Media types of patches.
pub(super) const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A path and its operations.
#[derive(Debug)]
pub(super) struct PathItem {
    /// The path, with the placeholders `{name}` and `{namespace}`.
    pub(super) template: String,
    /// Those that all operations share, sorted by name.
    pub(super) parameters: Vec<Parameter>,
    pub(super) operations: Vec<Operation>,
}

/// One method of a path.
#[derive(Debug)]
pub(super) struct Operation {
    /// The HTTP method, in lower case.
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) doc: String,
    /// The parameters that only this operation has, sorted by name.
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: RequestBody,
    pub(super) codes: &'static [(&'static str, &'static str)],
    /// The name of the schema of the response.
    pub(super) answer: String,
    pub(super) produces: &'static [&'static str],
    /// The kind and action, which clients read; `None` for an operation on no object.
    pub(super) target: Option<Target>,
}

/// The body of a request.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// Nothing.
    None,
    /// An object, of this schema.
    Object(String),
    /// `DeleteOptions`, or nothing.
    Options,
    /// A patch of any type.
    Patch,
}

/// The action of an operation, and its kind.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) action: &'static str,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: &'static str,
}

impl Target {
    /// Group, version and kind, as extensions have them.
    pub(super) fn kind(&self) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": self.kind })
    }
}

const OK: &[(&str, &str)] = &[("200", "OK")];
const REPLACED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created")];
const CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];
const DELETED: &[(&str, &str)] = &[("200", "OK"), ("202", "Accepted")];

/// The key of an OpenAPI v3 document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenApiV3Key<'a> {
    /// `api`
    Api,
    /// `apis`
    Apis,
    /// `version`
    Version,
    /// `apis/<group>`
    Group(&'a str),
    /// `apis/<group>/<version>`, `api/v1`
    GroupVersion(GroupVersion<'a>),
}

impl OpenApiV3Key<'_> {
    /// The key, without a leading slash.
    pub(super) fn key(self) -> String {
        match self {
            Self::Api => "api".to_owned(),
            Self::Apis => "apis".to_owned(),
            Self::Version => "version".to_owned(),
            Self::Group(group) => format!("apis/{group}"),
            Self::GroupVersion(gv) => gv.path().trim_matches('/').to_owned(),
        }
    }

    /// The paths of the section.
    pub(super) fn paths(self, kinds: &[&Kind]) -> Vec<PathItem> {
        match self {
            Self::GroupVersion(gv) => group_version(kinds, gv),
            _ => vec![overview(self)],
        }
    }
}

/// All sections, in order.
pub(super) fn sections<'a>(kinds: &[&'a Kind]) -> Vec<OpenApiV3Key<'a>> {
    let mut sections = vec![OpenApiV3Key::Api];
    let of_version = |group, version| OpenApiV3Key::GroupVersion(GroupVersion { group, version });
    sections.extend(versions(kinds, "").into_iter().map(|v| of_version("", v)));
    sections.push(OpenApiV3Key::Apis);
    for group in groups(kinds) {
        sections.push(OpenApiV3Key::Group(group));
        sections.extend(
            versions(kinds, group)
                .into_iter()
                .map(|version| of_version(group, version)),
        );
    }
    sections.push(OpenApiV3Key::Version);
    sections
}

/// The one path of a section that is not a group version, or the path of the group version itself.
fn overview(section: OpenApiV3Key<'_>) -> PathItem {
    let mut produces = OBJECTS;
    let (id, tag, doc, answer) = match section {
        OpenApiV3Key::Api => (
            "getCoreAPIVersions".to_owned(),
            "core".to_owned(),
            "List the versions of the core API.",
            meta("APIVersions"),
        ),
        OpenApiV3Key::Apis => (
            "getAPIVersions".to_owned(),
            "apis".to_owned(),
            "List the API groups.",
            meta("APIGroupList"),
        ),
        OpenApiV3Key::Version => {
            produces = &["application/json"];
            (
                "getCodeVersion".to_owned(),
                "version".to_owned(),
                "Get the version of the server.",
                "io.k8s.apimachinery.pkg.version.Info".to_owned(),
            )
        }
        OpenApiV3Key::Group(group) => (
            format!("get{}APIGroup", group_operation(group)),
            group_tag(group),
            "Get the versions of an API group.",
            meta("APIGroup"),
        ),
        OpenApiV3Key::GroupVersion(gv) => (
            format!("get{}APIResources", gv.operation()),
            gv.tag(),
            "List the resources of an API version.",
            meta("APIResourceList"),
        ),
    };
    PathItem {
        // With the slash that kube-apiserver's documents have at the end of these paths.
        template: format!("/{}/", section.key()),
        parameters: Vec::new(),
        operations: vec![Operation {
            method: "get",
            id,
            tag,
            doc: doc.to_owned(),
            parameters: Vec::new(),
            body: RequestBody::None,
            codes: OK,
            answer,
            produces,
            target: None,
        }],
    }
}

fn group_version(kinds: &[&Kind], gv: GroupVersion<'_>) -> Vec<PathItem> {
    let mut paths = vec![overview(OpenApiV3Key::GroupVersion(gv))];
    for kind in resources(kinds, gv.group, gv.version) {
        let Some(version) = kind.version(gv.version) else {
            continue;
        };
        let resource = Resource {
            gv,
            kind,
            schema: gv.schema(version.shape.home, version.shape.name),
        };
        match kind.storage {
            Storage::Stored => resource.stored(&mut paths),
            Storage::CreateOnly => paths.push(resource.create_only()),
        }
    }
    paths
}

/// A resource of a group version.
struct Resource<'a> {
    gv: GroupVersion<'a>,
    kind: &'a Kind,
    /// Name of the schema of its objects.
    schema: String,
}

impl Resource<'_> {
    fn create_only(&self) -> PathItem {
        self.path("", "", vec![self.create()])
    }

    fn stored(&self, paths: &mut Vec<PathItem>) {
        paths.push(self.path(
            "",
            "",
            vec![self.list(""), self.create(), self.delete_collection()],
        ));
        paths.push(self.path(
            "",
            "/{name}",
            vec![
                self.read(""),
                self.replace(""),
                self.delete(),
                self.patch(""),
            ],
        ));
        if self.kind.has_status {
            paths.push(self.path(
                "",
                "/{name}/status",
                vec![
                    self.read("Status"),
                    self.replace("Status"),
                    self.patch("Status"),
                ],
            ));
        }
        paths.push(self.path("watch/", "", vec![self.watch_list("")]));
        paths.push(self.path("watch/", "/{name}", vec![self.watch()]));
        if self.kind.namespaced {
            let everywhere = "ForAllNamespaces";
            paths.push(self.unscoped_path("", vec![self.list(everywhere)]));
            paths.push(self.unscoped_path("watch/", vec![self.watch_list(everywhere)]));
        }
    }

    /// A path below the resource, in a namespace if the kind lives in one.
    fn path(&self, prefix: &str, suffix: &str, operations: Vec<Operation>) -> PathItem {
        let namespace = if self.kind.namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let (base, plural) = (self.gv.path(), self.kind.plural);
        hoisted(
            format!("{base}{prefix}{namespace}{plural}{suffix}"),
            operations,
        )
    }

    /// A path of the resource over all namespaces.
    fn unscoped_path(&self, prefix: &str, operations: Vec<Operation>) -> PathItem {
        let (base, plural) = (self.gv.path(), self.kind.plural);
        hoisted(format!("{base}{prefix}{plural}"), operations)
    }

    fn list(&self, scope: &str) -> Operation {
        let list_schema = self
            .gv
            .schema(TypePackage::GroupVersion, self.kind.list_kind);
        Operation {
            produces: STREAMS,
            ..self.operation(
                ("get", "list", "list"),
                ("", scope),
                LIST,
                format!("List objects of kind {}, or watch them.", self.kind.kind),
                list_schema,
            )
        }
    }

    fn create(&self) -> Operation {
        Operation {
            body: RequestBody::Object(self.schema.clone()),
            codes: CREATED,
            ..self.operation(
                ("post", "create", "post"),
                ("", ""),
                WRITE,
                format!("Create an object of kind {}.", self.kind.kind),
                self.schema.clone(),
            )
        }
    }

    fn delete_collection(&self) -> Operation {
        Operation {
            body: RequestBody::Options,
            ..self.operation(
                ("delete", "delete", "deletecollection"),
                ("Collection", ""),
                DELETE_COLLECTION,
                format!("Delete many objects of kind {}.", self.kind.kind),
                meta("Status"),
            )
        }
    }

    fn read(&self, part: &str) -> Operation {
        self.operation(
            ("get", "read", "get"),
            ("", part),
            &[],
            format!("Read an object of kind {}{}.", self.kind.kind, of(part)),
            self.schema.clone(),
        )
    }

    fn replace(&self, part: &str) -> Operation {
        Operation {
            body: RequestBody::Object(self.schema.clone()),
            codes: REPLACED,
            ..self.operation(
                ("put", "replace", "put"),
                ("", part),
                WRITE,
                format!("Replace an object of kind {}{}.", self.kind.kind, of(part)),
                self.schema.clone(),
            )
        }
    }

    fn delete(&self) -> Operation {
        Operation {
            body: RequestBody::Options,
            codes: DELETED,
            ..self.operation(
                ("delete", "delete", "delete"),
                ("", ""),
                DELETE,
                format!("Delete an object of kind {}.", self.kind.kind),
                meta("Status"),
            )
        }
    }

    fn patch(&self, part: &str) -> Operation {
        Operation {
            body: RequestBody::Patch,
            codes: REPLACED,
            ..self.operation(
                ("patch", "patch", "patch"),
                ("", part),
                PATCH,
                format!("Change an object of kind {}{}.", self.kind.kind, of(part)),
                self.schema.clone(),
            )
        }
    }

    fn watch_list(&self, scope: &str) -> Operation {
        Operation {
            produces: STREAMS,
            ..self.operation(
                ("get", "watch", "watchlist"),
                ("", &format!("List{scope}")),
                LIST,
                format!(
                    "Watch objects of kind {}. Deprecated: list with watch=true.",
                    self.kind.kind
                ),
                meta("WatchEvent"),
            )
        }
    }

    fn watch(&self) -> Operation {
        Operation {
            produces: STREAMS,
            ..self.operation(
                ("get", "watch", "watch"),
                ("", ""),
                LIST,
                format!(
                    "Watch one object of kind {}. Deprecated: list with watch=true and a \
                     fieldSelector.",
                    self.kind.kind
                ),
                meta("WatchEvent"),
            )
        }
    }

    /// An operation without a request body, with the response 200. The first tuple is its method, the first
    /// word of its ID, and its action; the second is what its ID has before and after the kind.
    fn operation(
        &self,
        (method, verb, action): (&'static str, &str, &'static str),
        (before, behind): (&str, &str),
        parameters: &[Parameter],
        doc: String,
        answer: String,
    ) -> Operation {
        // Identifiers of operations over all namespaces lack the word "Namespaced"; generated clients are named after them.
        let everywhere = behind.ends_with("ForAllNamespaces");
        let scope = if self.kind.namespaced && !everywhere {
            "Namespaced"
        } else {
            ""
        };
        let mut parameters = parameters.to_vec();
        parameters.push(PRETTY);
        Operation {
            method,
            id: format!(
                "{verb}{}{before}{scope}{}{behind}",
                self.gv.operation(),
                self.kind.kind
            ),
            tag: self.gv.tag(),
            doc,
            parameters,
            body: RequestBody::None,
            codes: OK,
            answer,
            produces: OBJECTS,
            target: Some(Target {
                action,
                group: self.gv.group.to_owned(),
                version: self.gv.version.to_owned(),
                kind: self.kind.kind,
            }),
        }
    }
}

/// The end of a description, for a part of the object.
fn of(part: &str) -> &'static str {
    if part.is_empty() { "" } else { ", its status" }
}

/// A path item. Parameters that all operations share are moved to the path.
fn hoisted(template: String, mut operations: Vec<Operation>) -> PathItem {
    let mut parameters = Vec::new();
    for (segment, parameter) in [("{name}", NAME), ("{namespace}", NAMESPACE)] {
        if template.contains(segment) {
            parameters.push(parameter);
        }
    }
    let shared: Vec<Parameter> = operations
        .first()
        .map(|first| first.parameters.clone())
        .unwrap_or_default()
        .into_iter()
        .filter(|parameter| operations.iter().all(|operation| has(operation, parameter)))
        .collect();
    for operation in &mut operations {
        operation
            .parameters
            .retain(|own| shared.iter().all(|parameter| parameter.name != own.name));
        operation.parameters.sort_by_key(|parameter| parameter.name);
    }
    parameters.extend(shared);
    parameters.sort_by_key(|parameter| parameter.name);
    PathItem {
        template,
        parameters,
        operations,
    }
}

fn has(operation: &Operation, parameter: &Parameter) -> bool {
    let mut own = operation.parameters.iter();
    own.any(|own| own.name == parameter.name)
}
