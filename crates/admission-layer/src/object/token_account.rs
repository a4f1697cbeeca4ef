//! Requests for tokens of service accounts: what a server makes of one by the account, and refuses before it asks its policies.
//!
//! Source: Kubernetes `pkg/registry/core/serviceaccount/storage/token.go` and `pkg/apis/authentication/validation`.
//!
//! Not here: what the token is bound to; and the audiences of a request without any, which are those of the server's flag `--api-audiences`, and
//! which no API tells: `fairgate check --admission` names expressions that read them.

use fairgate_apihttp::status_error::StatusError;
use fairgate_objects::field_error::ApiFieldError;
use serde_json::{Map, Value, json};

use crate::{object::object_errors::not_found, request::facts::WriteFacts};

/// The type of the requests.
const KIND: [&str; 2] = ["TokenRequest", "authentication.k8s.io"];
/// How many seconds a token is valid.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// The service account that a token is requested for.
#[derive(Debug)]
pub(crate) enum TokenAccount {
    /// There is none.
    Absent,
    /// It has this UID.
    Known(String),
}

impl TokenAccount {
    /// Gives a request the name and the UID of the account, and notes why the server would refuse it. A UID that it states is kept: a server
    /// refuses another one than that of the account.
    pub(crate) fn settle(&self, request: &mut Value, facts: &mut WriteFacts) {
        let Some(members) = request.as_object_mut() else {
            return;
        };
        // A server has those of its configuration then, and never none: expressions must not read an empty list.
        if let Some(Value::Object(spec)) = members.get_mut("spec") {
            let is_empty = |audiences: &Value| audiences.as_array().is_none_or(Vec::is_empty);
            if spec.get("audiences").is_some_and(is_empty) {
                spec.remove("audiences");
            }
        }
        let metadata = members.entry("metadata").or_insert_with(|| json!({}));
        let Some(metadata) = metadata.as_object_mut() else {
            return;
        };
        let (name, uid) = (text(metadata, "name"), text(metadata, "uid"));
        if !name.is_empty() && name != facts.name {
            let why = "must match the service account name if specified";
            let error = ApiFieldError::invalid("metadata.name", &json!(name), why);
            let error = invalid(&facts.name, error);
            facts.findings.note(Some(error));
        }
        match self {
            Self::Absent => {
                let error = not_found(facts);
                facts.findings.note(Some(error));
            }
            Self::Known(known) if !uid.is_empty() && uid != *known => {
                let why = format!(
                    "the UID in the token request ({uid}) does not match the UID of the service account ({known})"
                );
                let [kind, group] = KIND;
                let error = StatusError::conflict_of_kind(kind, group, &facts.name, &why);
                facts.findings.note(Some(error));
            }
            Self::Known(known) if uid.is_empty() => {
                metadata.insert("uid".to_owned(), json!(known));
            }
            Self::Known(_) => {}
        }
        if name.is_empty() {
            metadata.insert("name".to_owned(), json!(facts.name));
        }
    }
}

/// Notes that a request, which has its defaults, is for another time than tokens are made for.
pub(crate) fn note_duration(request: &Value, facts: &mut WriteFacts) {
    let seconds = &request["spec"]["expirationSeconds"];
    let why = match seconds.as_i64() {
        Some(asked) if asked < SHORTEST => "may not specify a duration less than 10 minutes",
        Some(asked) if asked > LONGEST => "may not specify a duration larger than 2^32 seconds",
        _ => return,
    };
    let error = ApiFieldError::invalid("spec.expirationSeconds", seconds, why);
    facts.findings.note(Some(invalid("", error)));
}

fn invalid(name: &str, error: ApiFieldError) -> StatusError {
    let [kind, group] = KIND;
    StatusError::invalid(kind, group, name, &[error])
}

fn text(metadata: &Map<String, Value>, key: &str) -> String {
    let text = metadata.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairgate_core::digest::{RequestInfo, User};

    use super::*;
    use crate::request::write_request::Subject;

    #[test]
    fn an_empty_list_of_audiences_is_none_since_a_server_has_its_own_then() {
        let path = "/api/v1/namespaces/n/serviceaccounts/robot/token";
        let info = RequestInfo::from_target("POST", path).unwrap();
        let Subject::Write(write) = Subject::of(&info) else {
            panic!("no write");
        };
        let mut facts = WriteFacts::new(&write, &Arc::new(User::default()), None);
        for (sent, seen) in [
            (json!({"audiences": []}), json!({})),
            (json!({"audiences": null}), json!({})),
            (json!({}), json!({})),
            (json!({"audiences": ["a"]}), json!({"audiences": ["a"]})),
        ] {
            let mut request = json!({"spec": sent});
            let account = TokenAccount::Known("u-1".to_owned());
            account.settle(&mut request, &mut facts);
            assert_eq!(request["spec"], seen);
            assert_eq!(request["metadata"], json!({"name": "robot", "uid": "u-1"}));
        }
    }
}
