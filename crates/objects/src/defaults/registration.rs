//! The defaults of kinds that extend a server: webhooks and policies of admission, custom resources, API services.

use serde_json::{Map, json};

use super::fields::{FieldMap, is_nil, items, nil_to, object, part, set_if_nil, text, zero_to};

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
        nil_to(hook, "reinvocationPolicy", "Never");
    }
}

fn webhook(webhook: &mut FieldMap) {
    nil_to(webhook, "failurePolicy", "Fail");
    matching(webhook);
    nil_to(webhook, "timeoutSeconds", WEBHOOK_SECONDS);
    if let Some(config) = object(webhook, "clientConfig") {
        service_port(config);
    }
    scopes(webhook, "rules");
}

/// Which objects a webhook or a policy is for: all, in all versions.
fn matching(parent: &mut FieldMap) {
    nil_to(parent, "matchPolicy", "Equivalent");
    set_if_nil(parent, "namespaceSelector", Map::new);
    set_if_nil(parent, "objectSelector", Map::new);
}

fn scopes(parent: &mut FieldMap, rules: &str) {
    for rule in items(parent, rules) {
        nil_to(rule, "scope", "*");
    }
}

/// The port of the service that a server calls.
fn service_port(parent: &mut FieldMap) {
    if let Some(service) = object(parent, "service") {
        nil_to(service, "port", HTTPS);
    }
}

/// The defaults of a `ValidatingAdmissionPolicy` or a `MutatingAdmissionPolicy`.
pub(super) fn policy(policy: &mut FieldMap) {
    if let Some(spec) = part(policy, "spec") {
        nil_to(spec, "failurePolicy", "Fail");
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
    let Some(spec) = part(definition, "spec") else {
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
            zero_to(names, "singular", singular);
            zero_to(names, "listKind", list_kind);
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
        && let Some(status) = part(definition, "status")
    {
        zero_to(status, "storedVersions", vec![name]);
    }
}

/// The defaults of an `APIService`.
pub(super) fn api_service(service: &mut FieldMap) {
    if let Some(spec) = object(service, "spec") {
        service_port(spec);
    }
}
