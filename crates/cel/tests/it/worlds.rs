//! The worlds of the differential corpus: the values of the variables with which its expressions are evaluated.

use std::sync::Arc;

use fairgate_cel::library::authorizer::{
    AuthorizationAnswer, AuthorizationCheck, CelAuthorizer, authorizer, resource_check,
};
use fairgate_cel::{CelBindings, CelEnvironment, CelJson, CelValue};
use serde::Deserialize;

/// The values of a world's variables.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct World<'a> {
    #[serde(borrow)]
    object: CelJson<'a>,
    #[serde(borrow)]
    old_object: CelJson<'a>,
    #[serde(borrow)]
    params: CelJson<'a>,
    #[serde(borrow)]
    namespace_object: CelJson<'a>,
    #[serde(borrow)]
    request: CelJson<'a>,
}

impl World<'_> {
    pub(crate) fn bindings<'a>(&'a self, environment: &CelEnvironment) -> CelBindings<'a> {
        let (host, check) = self.host();
        environment
            .bindings()
            .with("object", CelValue::json(&self.object))
            .with("oldObject", CelValue::json(&self.old_object))
            .with("params", CelValue::json(&self.params))
            .with("namespaceObject", CelValue::json(&self.namespace_object))
            .with("request", CelValue::json(&self.request))
            .with("variables", CelValue::Null)
            .with("authorizer", authorizer(host.clone()))
            .with("authorizer.requestResource", resource_check(host, check))
    }

    /// The text at a path in the request; empty if there is none. The elements of a list are joined with commas.
    fn text(&self, path: &[&str]) -> String {
        let mut node = &self.request;
        for name in path {
            let CelJson::Object(object) = node else {
                return String::new();
            };
            let Some(next) = object.get(name) else {
                return String::new();
            };
            node = next;
        }
        match node {
            CelJson::String(text) => text.to_string(),
            CelJson::Array(all) => {
                let texts = all.iter().map(|node| match node {
                    CelJson::String(text) => text.to_string(),
                    _ => String::new(),
                });
                texts.collect::<Vec<_>>().join(",")
            }
            _ => String::new(),
        }
    }

    fn host(&self) -> (Arc<dyn CelAuthorizer>, AuthorizationCheck) {
        let host = VerbAuthorizer {
            user: self.text(&["userInfo", "username"]),
            groups: self.text(&["userInfo", "groups"]),
        };
        let check = AuthorizationCheck {
            group: self.text(&["requestResource", "group"]),
            resource: self.text(&["requestResource", "resource"]),
            subresource: self.text(&["requestSubResource"]),
            namespace: self.text(&["namespace"]),
            name: self.text(&["name"]),
            ..AuthorizationCheck::default()
        };
        (Arc::new(host), check)
    }
}

/// Decides by the verb alone, like the fake authorizer of the oracle. The reason lists the attributes of the check.
struct VerbAuthorizer {
    user: String,
    groups: String,
}

impl CelAuthorizer for VerbAuthorizer {
    fn authorize(&self, check: &AuthorizationCheck) -> AuthorizationAnswer {
        let (user, groups) = match &check.service_account {
            Some((namespace, name)) => (
                format!("system:serviceaccount:{namespace}:{name}"),
                format!("system:serviceaccounts,system:serviceaccounts:{namespace}"),
            ),
            None => (self.user.clone(), self.groups.clone()),
        };
        let path = check.path.clone().unwrap_or_default();
        let version = if check.path.is_some() { "" } else { "*" };
        let mut asked = vec![&*user, &groups, &check.verb, &path, &check.group, version];
        asked.extend([
            &*check.resource,
            &check.subresource,
            &check.namespace,
            &check.name,
        ]);
        // The oracle finds no field requirement in an empty selector and in "=".
        let asks = |selector: &str| !selector.is_empty() && selector != "=";
        if asks(&check.field_selector) {
            asked.push("by field");
        }
        if asks(&check.label_selector) || check.label_selector == "=" {
            asked.push("by label");
        }
        let reason = asked.join("|");
        match &*check.verb {
            "get" | "list" | "watch" => AuthorizationAnswer {
                allowed: true,
                reason,
                error: None,
            },
            "fail" => AuthorizationAnswer {
                error: Some("the authorizer failed".to_owned()),
                ..AuthorizationAnswer::default()
            },
            _ => AuthorizationAnswer {
                reason,
                ..AuthorizationAnswer::default()
            },
        }
    }
}
