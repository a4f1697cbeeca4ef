//! Self-reviews: which user am I, and what may I do.

use serde_json::{Value, json};

use fairgate_apihttp::{authorize::BuiltInRules, status_error::StatusError};
use fairgate_core::digest::User;
use fairgate_gotext::names;
use fairgate_objects::{
    field_error::ApiFieldError,
    kind::{Kind, KindRules, KindVersion, Storage},
    schema::{
        authentication_v1::SELF_SUBJECT_REVIEW,
        authorization_v1::{SELF_SUBJECT_ACCESS_REVIEW, SELF_SUBJECT_RULES_REVIEW},
    },
};
use fairgate_upstream::access_review::Attributes;

/// The kinds of reviews.
pub(crate) static REVIEWS: [&Kind; 3] = [&ACCESS, &RULES, &SELF];

const RULES_OF_REVIEWS: &KindRules = &KindRules {
    name: Some(names::object_name),
    validate: |_, _| Vec::new(),
    slow_validation: false,
    validate_status: nothing_wrong,
    warnings: |_| Vec::new(),
    unconditional_update: false,
    status_writes_metadata: false,
    columns: &[],
    row_order: None,
};

fn nothing_wrong(_: &Value) -> Vec<ApiFieldError> {
    Vec::new()
}

const fn review(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    versions: &'static [KindVersion],
) -> Kind {
    Kind {
        group,
        kind,
        list_kind: "",
        plural,
        singular,
        short_names: &[],
        categories: &[],
        namespaced: false,
        has_status: false,
        storage: Storage::CreateOnly,
        versions,
        rules: RULES_OF_REVIEWS,
    }
}

const fn v1(shape: &'static fairgate_objects::schema::Struct) -> KindVersion {
    KindVersion {
        name: "v1",
        shape,
        deprecated: None,
        default: |_| {},
        to_storage: |_| {},
        from_storage: |_| {},
    }
}

static ACCESS: Kind = review(
    "authorization.k8s.io",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    "selfsubjectaccessreview",
    &[v1(&SELF_SUBJECT_ACCESS_REVIEW)],
);

static RULES: Kind = review(
    "authorization.k8s.io",
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    "selfsubjectrulesreview",
    &[v1(&SELF_SUBJECT_RULES_REVIEW)],
);

static SELF: Kind = review(
    "authentication.k8s.io",
    "SelfSubjectReview",
    "selfsubjectreviews",
    "selfsubjectreview",
    &[v1(&SELF_SUBJECT_REVIEW)],
);

/// Sets the status of a review.
///
/// # Errors
///
/// 422, when the spec is invalid.
pub(crate) fn answer(
    rules: &BuiltInRules,
    kind: &Kind,
    user: &User,
    review: &mut Value,
) -> Result<(), StatusError> {
    review["status"] = match kind.kind {
        "SelfSubjectReview" => json!({"userInfo": user_info(user)}),
        "SelfSubjectRulesReview" => rules.listed(user),
        _ => {
            let attributes = reviewed_attributes(review)
                .map_err(|error| StatusError::invalid(kind.kind, kind.group, "", &[error]))?;
            let allowed = rules.allow(user, &attributes);
            let mut status = json!({"allowed": allowed});
            if allowed && user.in_group(User::MASTERS) {
                status["reason"] = json!("system:masters may do everything");
            }
            status
        }
    };
    Ok(())
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name});
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// The request that an access review describes.
fn reviewed_attributes(review: &Value) -> Result<Attributes, ApiFieldError> {
    let spec = &review["spec"];
    let text =
        |attributes: &Value, field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
    match (
        spec["resourceAttributes"].is_object(),
        spec["nonResourceAttributes"].is_object(),
    ) {
        (true, true) => Err(ApiFieldError::invalid(
            "spec.nonResourceAttributes",
            &spec["nonResourceAttributes"],
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => Err(ApiFieldError::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        (true, false) => {
            let attributes = &spec["resourceAttributes"];
            Ok(Attributes {
                verb: text(attributes, "verb"),
                is_resource: true,
                group: text(attributes, "group"),
                version: text(attributes, "version"),
                resource: text(attributes, "resource"),
                subresource: text(attributes, "subresource"),
                namespace: text(attributes, "namespace"),
                name: text(attributes, "name"),
                ..Attributes::default()
            })
        }
        (false, true) => {
            let attributes = &spec["nonResourceAttributes"];
            Ok(Attributes {
                verb: text(attributes, "verb"),
                path: text(attributes, "path"),
                ..Attributes::default()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_objects::kinds::FLOW_CONTROL;

    use super::*;

    fn reviewed(kind: &Kind, mut review: Value) -> Result<Value, String> {
        let user = User::new("alice", ["devs", User::AUTHENTICATED]);
        let rules = BuiltInRules {
            readers: vec!["devs".to_owned()],
            kinds: FLOW_CONTROL.to_vec(),
        };
        answer(&rules, kind, &user, &mut review)
            .map(|()| review["status"].clone())
            .map_err(|fault| fault.message)
    }

    #[test]
    fn a_user_gets_its_name_and_its_rights() {
        assert_eq!(
            reviewed(&SELF, json!({})).unwrap(),
            json!({"userInfo": {"username": "alice", "groups": ["devs", "system:authenticated"]}})
        );
        let asks = |verb: &str| {
            json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "flowschemas",
                "group": "flowcontrol.apiserver.k8s.io"}}})
        };
        assert_eq!(reviewed(&ACCESS, asks("list")).unwrap()["allowed"], true);
        assert_eq!(reviewed(&ACCESS, asks("delete")).unwrap()["allowed"], false);
        let path = json!({"spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}});
        assert_eq!(reviewed(&ACCESS, path).unwrap()["allowed"], true);
        assert!(
            reviewed(&ACCESS, json!({"spec": {}}))
                .unwrap_err()
                .contains("exactly one")
        );
    }
}
