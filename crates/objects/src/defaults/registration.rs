//! The defaults of kinds that extend a server: webhooks and policies of admission, custom resources, API services.

use serde_json::{Map, json};

use super::fields::{
    FieldMap, default_if_nil, default_if_zero, is_nil, items, object, object_or_insert, set_if_nil,
    text,
};

/// How long a webhook may take, in seconds.
const WEBHOOK_SECONDS: i32 = 10;

const HTTPS: i32 = 443;

/// The defaults of a `ValidatingWebhookConfiguration`.
pub(super) fn validating_webhooks(configuration: &mut FieldMap) {
    items(configuration, "webhooks").for_each(webhook);
}

/// The defaults of a `MutatingWebhookConfiguration`.
pub(super) fn mutating_webhooks(configuration: &mut FieldMap) {
    for hook in items(configuration, "webhooks") {
        webhook(hook);
        default_if_nil(hook, "reinvocationPolicy", "Never");
    }
}

fn webhook(webhook: &mut FieldMap) {
    default_if_nil(webhook, "failurePolicy", "Fail");
    matching(webhook);
    default_if_nil(webhook, "timeoutSeconds", WEBHOOK_SECONDS);
    if let Some(config) = object(webhook, "clientConfig") {
        service_port(config);
    }
    scopes(webhook, "rules");
}

/// Which objects a webhook or a policy is for: all, in all versions.
fn matching(parent: &mut FieldMap) {
    default_if_nil(parent, "matchPolicy", "Equivalent");
    set_if_nil(parent, "namespaceSelector", Map::new);
    set_if_nil(parent, "objectSelector", Map::new);
}

fn scopes(parent: &mut FieldMap, rules: &str) {
    for rule in items(parent, rules) {
        default_if_nil(rule, "scope", "*");
    }
}

/// The port of the service that a server calls.
fn service_port(parent: &mut FieldMap) {
    if let Some(service) = object(parent, "service") {
        default_if_nil(service, "port", HTTPS);
    }
}

/// The defaults of a `ValidatingAdmissionPolicy` or a `MutatingAdmissionPolicy`.
pub(super) fn policy(policy: &mut FieldMap) {
    if let Some(spec) = object_or_insert(policy, "spec") {
        default_if_nil(spec, "failurePolicy", "Fail");
        match_resources(spec, "matchConstraints");
    }
}

/// The defaults of the binding of such a policy.
pub(super) fn policy_binding(binding: &mut FieldMap) {
    if let Some(spec) = object(binding, "spec") {
        match_resources(spec, "matchResources");
    }
}

fn match_resources(spec: &mut FieldMap, name: &str) {
    if let Some(resources) = object(spec, name) {
        matching(resources);
        scopes(resources, "resourceRules");
        scopes(resources, "excludeResourceRules");
    }
}

/// The defaults of a `CustomResourceDefinition`.
pub(super) fn custom_resource_definition(definition: &mut FieldMap) {
    let Some(spec) = object_or_insert(definition, "spec") else {
        return;
    };
    if let Some(names) = object(spec, "names") {
        let kind = text(names, "kind");
        if !kind.is_empty() {
            // As in Go, each letter becomes one letter.
            let singular: String = (kind.chars())
                .filter_map(|letter| letter.to_lowercase().next())
                .collect();
            let list_kind = format!("{kind}List");
            default_if_zero(names, "singular", singular);
            default_if_zero(names, "listKind", list_kind);
        }
    }
    if is_nil(spec, "conversion") {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    } else if let Some(conversion) = object(spec, "conversion")
        && let Some(webhook) = object(conversion, "webhook")
        && let Some(config) = object(webhook, "clientConfig")
    {
        service_port(config);
    }
    let stored =
        items(spec, "versions").find(|version| version.get("storage") == Some(&true.into()));
    let stored = stored.map(|version| text(version, "name").to_owned());
    if let Some(name) = stored
        && let Some(status) = object_or_insert(definition, "status")
    {
        default_if_zero(status, "storedVersions", vec![name]);
    }
}

/// The defaults of an `APIService`.
pub(super) fn api_service(service: &mut FieldMap) {
    if let Some(spec) = object(service, "spec") {
        service_port(spec);
    }
}
