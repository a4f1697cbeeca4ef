//! The options of a request, as policies see them: `request.options` of writes, and the object of upgrades.

use fairgate_apihttp::{
    deletion_checks, list_parameters::ListParameters, query::Query, status_error::StatusError,
};
use fairgate_core::digest::RequestInfo;
use fairgate_objects::codec::FieldValidation;
use serde_json::{Map, Value, json};

use crate::request::write_request::WriteVerb;

/// The API version of the options of writes.
const OPTIONS_VERSION: &str = "meta.k8s.io/v1";

/// The decoded parameters of a query.
#[derive(Clone, Debug)]
pub(crate) struct QueryParameters(Query);

impl QueryParameters {
    pub(crate) fn parse(query: &str) -> Self {
        Self(Query::parse(query))
    }

    /// The name by which the client owns fields; empty if it has given none.
    pub(crate) fn field_manager(&self) -> &str {
        self.0.first("fieldManager").unwrap_or_default()
    }

    /// The name by which the client owns the fields that it writes. Without one, the server takes the product in the user agent.
    pub(crate) fn manager(&self, user_agent: &str) -> String {
        match self.field_manager() {
            "" => fairgate_apihttp::query::manager_of(user_agent),
            named => named.to_owned(),
        }
    }

    /// How unknown and duplicate fields are handled. The upstream refuses values that it does not know, before it says anything of fields.
    pub(crate) fn field_validation(&self) -> FieldValidation {
        match self.0.first("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some(_) => FieldValidation::Ignore,
        }
    }

    /// Checks what the options of a deletion without a body are read from, and which objects of a collection are meant.
    ///
    /// # Errors
    ///
    /// 400 or 422.
    pub(crate) fn check_delete(&self, verb: WriteVerb, has_body: bool) -> Result<(), StatusError> {
        if verb == WriteVerb::DeleteCollection {
            self.list_parameters()?;
        }
        if !has_body {
            self.0.number("gracePeriodSeconds")?;
        }
        Ok(())
    }

    /// The parameters by which a server lists the collection that it deletes.
    ///
    /// # Errors
    ///
    /// 400 or 422.
    pub(crate) fn list_parameters(&self) -> Result<ListParameters, StatusError> {
        ListParameters::of_any(&self.0)
    }

    /// The selector of fields; empty if there is none.
    pub(crate) fn field_selector(&self) -> &str {
        self.0.first("fieldSelector").unwrap_or_default()
    }

    /// Whether nothing is to be stored.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.0
            .first("dryRun")
            .is_some_and(|value| !value.is_empty())
    }

    /// The options of a `POST`, `PUT` or `PATCH`. As in kube-apiserver, those of a patch look like those of an update.
    pub(crate) fn write_options(&self, verb: WriteVerb) -> Value {
        let kind = match verb {
            WriteVerb::Create => "CreateOptions",
            _ => "UpdateOptions",
        };
        let mut options = options_of(kind);
        let dry_run: Vec<&str> = self.0.all("dryRun").collect();
        if !dry_run.is_empty() {
            options.insert("dryRun".to_owned(), json!(dry_run));
        }
        for key in ["fieldManager", "fieldValidation"] {
            if let Some(text) = self.0.first(key).filter(|text| !text.is_empty()) {
                options.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(options)
    }

    /// The options of a `DELETE` without a body.
    pub(crate) fn delete_options(&self) -> Value {
        let seconds = self.0.first("gracePeriodSeconds");
        let seconds = seconds.and_then(|text| text.parse().ok());
        deletion_checks::options_in_query(&self.0, seconds).into()
    }

    /// The object of an upgrade, and its kind in `v1`: the options that its query describes.
    pub(crate) fn connect_options(&self, info: &RequestInfo) -> (&'static str, Value) {
        let kind = match (info.resource(), info.subresource()) {
            (_, b"exec") => "PodExecOptions",
            (_, b"attach") => "PodAttachOptions",
            (_, b"portforward") => "PodPortForwardOptions",
            (b"services", _) => "ServiceProxyOptions",
            (b"nodes", _) => "NodeProxyOptions",
            _ => "PodProxyOptions",
        };
        let mut options = Map::new();
        options.insert("apiVersion".to_owned(), json!("v1"));
        options.insert("kind".to_owned(), json!(kind));
        match kind {
            "PodExecOptions" | "PodAttachOptions" => {
                for key in ["stdin", "stdout", "stderr", "tty"] {
                    // Go leaves out what is false.
                    if self.0.flag(key) == Some(true) {
                        options.insert(key.to_owned(), json!(true));
                    }
                }
                if let Some(container) = self.0.first("container").filter(|one| !one.is_empty()) {
                    options.insert("container".to_owned(), json!(container));
                }
                let command: Vec<&str> = self.0.all("command").collect();
                if kind == "PodExecOptions" {
                    // Unlike the others, the original writes this member also without a value.
                    let value = if command.is_empty() {
                        Value::Null
                    } else {
                        json!(command)
                    };
                    options.insert("command".to_owned(), value);
                }
            }
            "PodPortForwardOptions" => {
                let numbers = self.0.all("ports").flat_map(|ports| ports.split(','));
                let ports: Vec<i32> = numbers.filter_map(|port| port.parse().ok()).collect();
                if !ports.is_empty() {
                    options.insert("ports".to_owned(), json!(ports));
                }
            }
            _ => {
                let path = proxied_path(info);
                if !path.is_empty() {
                    options.insert("path".to_owned(), json!(path));
                }
            }
        }
        (kind, Value::Object(options))
    }
}

fn options_of(kind: &str) -> Map<String, Value> {
    let mut options = Map::new();
    options.insert("apiVersion".to_owned(), json!(OPTIONS_VERSION));
    options.insert("kind".to_owned(), json!(kind));
    options
}

/// Delete options with their version and kind.
pub(crate) fn delete_options_of(sent: Value) -> Value {
    let mut options = options_of("DeleteOptions");
    if let Value::Object(sent) = sent {
        for (key, value) in sent {
            if key != "apiVersion" && key != "kind" {
                options.insert(key, value);
            }
        }
    }
    Value::Object(options)
}

/// The path behind `proxy`, with the slash at its beginning, and the one at its end if the request has it.
fn proxied_path(info: &RequestInfo) -> String {
    let parts: Vec<_> = info.parts().skip(3).map(String::from_utf8_lossy).collect();
    let mut path = parts.join("/");
    if !path.is_empty() && !path.starts_with('/') {
        path.insert(0, '/');
    }
    if info.path().ends_with(b"/") && !path.ends_with('/') {
        path.push('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(target: &str) -> Value {
        let info = RequestInfo::from_target("GET", target).unwrap();
        let query = target.split_once('?').map_or("", |(_, query)| query);
        QueryParameters::parse(query).connect_options(&info).1
    }

    #[test]
    fn upgrades_have_the_options_of_their_query() {
        let pod = "/api/v1/namespaces/a/pods/p";
        assert_eq!(
            connect(&format!(
                "{pod}/exec?command=rm&command=-r%20f&stdin=true&tty=0&container=c&stdout"
            )),
            json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["rm", "-r f"],
                "stdin": true, "stdout": true, "container": "c"})
        );
        assert_eq!(
            connect(&format!("{pod}/exec?stdout=1")),
            json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": null, "stdout": true})
        );
        assert_eq!(
            connect(&format!("{pod}/attach?command=x&stderr=1")),
            json!({"apiVersion": "v1", "kind": "PodAttachOptions", "stderr": true})
        );
        assert_eq!(
            connect(&format!("{pod}/portforward?ports=80,443&ports=8080")),
            json!({"apiVersion": "v1", "kind": "PodPortForwardOptions", "ports": [80, 443, 8080]})
        );
        assert_eq!(
            connect("/api/v1/nodes/n/proxy/a/b/"),
            json!({"apiVersion": "v1", "kind": "NodeProxyOptions", "path": "/a/b/"})
        );
        assert_eq!(
            connect("/api/v1/namespaces/a/services/s/proxy"),
            json!({"apiVersion": "v1", "kind": "ServiceProxyOptions"})
        );
    }

    #[test]
    fn writes_have_the_options_of_their_query() {
        let query = QueryParameters::parse("dryRun=All&fieldManager=me&pretty=1");
        assert!(query.is_dry_run());
        assert_eq!(
            query.write_options(WriteVerb::Patch),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "dryRun": ["All"],
                "fieldManager": "me"})
        );
        let query = QueryParameters::parse("gracePeriodSeconds=5&uid=u&orphanDependents=false");
        assert_eq!(
            delete_options_of(query.delete_options()),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 5,
                "orphanDependents": false, "preconditions": {"uid": "u"}})
        );
    }
}
