//! Which requests policies are about: what a request does, and to what.

use fairgate_admission::{
    AdmissionAttributes, AdmissionOperation, GroupVersionKind, GroupVersionResource,
};
use fairgate_core::digest::{RequestInfo, User, Verb};

/// Whether policies may be about a request.
#[derive(Debug)]
pub(crate) enum Subject<'a> {
    /// It reads, is no request for a resource, or has a path that no object has.
    None,
    /// It writes, or connects to an object.
    Write(ForwardedWrite<'a>),
    /// Its path is not UTF-8: it names nothing that exists.
    Unreadable,
}

/// A write, or an upgrade, as its path and method describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForwardedWrite<'a> {
    pub(crate) operation: AdmissionOperation,
    pub(crate) resource: GroupVersionResource<'a>,
    /// The subresource, or empty.
    pub(crate) subresource: &'a str,
    /// The namespace, or empty.
    pub(crate) namespace: &'a str,
    /// The name in the path, or empty.
    pub(crate) name: &'a str,
    pub(crate) verb: WriteVerb,
}

/// What a request does, more exactly than its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteVerb {
    Create,
    /// It creates the object if it does not exist and its kind allows that.
    Update,
    /// Of these, only server-side apply creates.
    Patch,
    Delete,
    DeleteCollection,
    Connect,
}

impl<'a> Subject<'a> {
    /// Classifies a request. It costs some comparisons, and allocates nothing.
    pub(crate) fn of(info: &'a RequestInfo) -> Self {
        if !info.is_resource {
            return Self::None;
        }
        let Some(verb) = WriteVerb::of(info) else {
            return Self::None;
        };
        let text = |part: &'a [u8]| std::str::from_utf8(part).ok();
        let parts = || {
            Some(ForwardedWrite {
                operation: verb.operation(),
                resource: GroupVersionResource {
                    group: text(info.group())?,
                    version: text(info.version())?,
                    resource: text(info.resource())?,
                },
                subresource: match info.verb {
                    Verb::Proxy => "proxy",
                    _ => text(info.subresource())?,
                },
                namespace: text(info.namespace())?,
                // A name in a field selector is not the name of the request.
                name: match verb {
                    WriteVerb::DeleteCollection => "",
                    _ => text(info.name())?,
                },
                verb,
            })
        };
        parts().map_or(Self::Unreadable, Self::Write)
    }
}

impl WriteVerb {
    fn of(info: &RequestInfo) -> Option<Self> {
        if connects(info) {
            return Some(Self::Connect);
        }
        Some(match info.verb {
            Verb::Create => Self::Create,
            Verb::Update => Self::Update,
            Verb::Patch => Self::Patch,
            Verb::Delete => Self::Delete,
            Verb::DeleteCollection => Self::DeleteCollection,
            _ => return None,
        })
    }

    fn operation(self) -> AdmissionOperation {
        match self {
            Self::Create => AdmissionOperation::Create,
            Self::Update | Self::Patch => AdmissionOperation::Update,
            Self::Delete | Self::DeleteCollection => AdmissionOperation::Delete,
            Self::Connect => AdmissionOperation::Connect,
        }
    }
}

/// Whether a request connects to its object, whatever its method.
fn connects(info: &RequestInfo) -> bool {
    if info.verb == Verb::Proxy {
        return true;
    }
    info.group().is_empty()
        && matches!(
            (info.resource(), info.subresource()),
            (b"pods", b"exec" | b"attach" | b"portforward" | b"proxy")
                | (b"services" | b"nodes", b"proxy")
        )
}

impl<'a> ForwardedWrite<'a> {
    /// The attributes that policies match, as far as they are known before the body is.
    pub(crate) fn attributes(
        &self,
        operation: AdmissionOperation,
        kind: GroupVersionKind<'a>,
        user: &'a User,
    ) -> AdmissionAttributes<'a> {
        AdmissionAttributes {
            operation,
            resource: self.resource,
            subresource: self.subresource,
            kind,
            namespace: self.namespace,
            name: self.name,
            user,
            dry_run: false,
            options: None,
        }
    }

    /// Whether the request may turn out to create an object although it is an update.
    pub(crate) fn may_create(&self) -> bool {
        matches!(self.verb, WriteVerb::Update | WriteVerb::Patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(method: &str, target: &str) -> Option<WriteVerb> {
        let info = RequestInfo::from_target(method, target).unwrap();
        match Subject::of(&info) {
            Subject::Write(write) => Some(write.verb),
            Subject::None => None,
            Subject::Unreadable => panic!("unreadable"),
        }
    }

    #[test]
    fn only_writes_and_upgrades_are_subject_to_policies() {
        for (method, target, expected) in [
            ("GET", "/api/v1/namespaces/a/pods", None),
            ("GET", "/api/v1/namespaces/a/pods?watch=1", None),
            ("POST", "/version", None),
            ("POST", "/api/v1/namespaces/a/pods", Some(WriteVerb::Create)),
            ("PUT", "/api/v1/nodes/n", Some(WriteVerb::Update)),
            ("PATCH", "/api/v1/nodes/n/status", Some(WriteVerb::Patch)),
            ("DELETE", "/api/v1/nodes/n", Some(WriteVerb::Delete)),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=x",
                Some(WriteVerb::DeleteCollection),
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/p/exec?command=ls",
                Some(WriteVerb::Connect),
            ),
            (
                "GET",
                "/api/v1/nodes/n/proxy/metrics",
                Some(WriteVerb::Connect),
            ),
            ("GET", "/api/v1/namespaces/a/pods/p/log", None),
            (
                "POST",
                "/apis/x.io/v1/namespaces/a/pods/p/exec",
                Some(WriteVerb::Create),
            ),
        ] {
            assert_eq!(operation(method, target), expected, "{method} {target}");
        }
    }

    #[test]
    fn the_items_of_a_collection_have_no_name() {
        let target = "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx";
        let info = RequestInfo::from_target("DELETE", target).unwrap();
        let Subject::Write(write) = Subject::of(&info) else {
            panic!("a write");
        };
        assert_eq!((write.name, write.namespace), ("", "a"));
    }

    #[test]
    fn a_path_that_is_not_utf8_is_told_apart() {
        let info = RequestInfo::from_target("PUT", "/api/v1/nodes/%ff").unwrap();
        assert!(matches!(Subject::of(&info), Subject::Unreadable));
    }
}
