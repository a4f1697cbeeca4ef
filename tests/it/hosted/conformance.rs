//! The conformance tests of Kubernetes for these kinds, call for call.
//!
//! They are "should support FlowSchema API operations", "should support PriorityLevelConfiguration
//! API operations", and "requests can be classified by adding FlowSchema and
//! PriorityLevelConfiguration" of `test/e2e/apimachinery/flowcontrol.go`.

use fairgate_objects::{
    kind::{Kind, KindVersion},
    kinds::{FLOW_SCHEMA, PRIORITY_LEVEL},
};
use http::Method;
use serde_json::{Value, json};

use super::{
    Home, LEVELS, SCHEMAS, Server,
    api::{Api, ApiResponse, MERGE, Watch},
    condition,
    format::Format,
    level, name, schema, until, version,
};

/// One run of a test: the client, the kind, version and format of the objects, and their label.
struct Replay<'a> {
    api: &'a Api,
    kind: &'static Kind,
    version: &'static KindVersion,
    format: Format,
    label: String,
}

/// How often a write is tried that conflicts with another writer's.
const TRIES: usize = 5;

impl Replay<'_> {
    fn path(&self, rest: &str) -> String {
        let api_version = self.kind.api_version(self.version.name);
        format!("/apis/{api_version}/{}{rest}", self.kind.plural)
    }

    fn by_label(&self, more: &str) -> String {
        self.path(&format!("?labelSelector={}{more}", self.label))
    }

    fn read(&self, response: &ApiResponse) -> Value {
        assert!(response.status.is_success(), "{response:?}");
        assert_eq!(response.header("content-type"), self.format.media_type());
        let deprecated = self.version.deprecated.is_some();
        assert_eq!(
            response.warnings().len(),
            usize::from(deprecated),
            "{response:?}"
        );
        let object = self.format.read(self.version.shape, &response.body);
        assert_eq!(object["kind"], self.kind.kind);
        let api_version = self.kind.api_version(self.version.name);
        assert_eq!(object["apiVersion"], api_version);
        object
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> ApiResponse {
        let request = self.api.request(method, target);
        let request = request
            .header("accept", self.format.media_type())
            .header("content-type", content_type)
            .header("user-agent", "e2e.test/v1.36.3");
        self.api.send(request, body).await
    }

    async fn get(&self, target: &str) -> ApiResponse {
        let media_type = self.format.media_type();
        self.send(Method::GET, target, media_type, Vec::new()).await
    }

    async fn write(&self, method: Method, target: &str, object: &Value) -> ApiResponse {
        let body = self.format.write(self.version, object);
        let media_type = self.format.media_type();
        self.send(method, target, media_type, body).await
    }

    async fn patch(&self, target: &str, patch: &Value) -> Value {
        let body = patch.to_string().into_bytes();
        self.read(&self.send(Method::PATCH, target, MERGE, body).await)
    }

    async fn delete(&self, target: &str) -> ApiResponse {
        let body = self.format.delete_options();
        let media_type = self.format.media_type();
        self.send(Method::DELETE, target, media_type, body).await
    }

    async fn list(&self) -> Value {
        let response = self.get(&self.by_label("")).await;
        assert!(response.status.is_success(), "{response:?}");
        let shape = self.version.shape;
        self.format.read_list(self.kind, shape, &response.body)
    }

    async fn count(&self) -> usize {
        self.list().await["items"].as_array().unwrap().len()
    }

    /// Reads and changes an object, and tries again after a conflict.
    async fn update(&self, name: &str, sub: &str, change: impl Fn(&mut Value)) -> Value {
        for _ in 0..TRIES {
            let mut object = self.read(&self.get(&self.path(&format!("/{name}"))).await);
            change(&mut object);
            let target = self.path(&format!("/{name}{sub}"));
            let response = self.write(Method::PUT, &target, &object).await;
            if response.status.as_u16() != 409 {
                return self.read(&response);
            }
        }
        panic!("every write conflicts");
    }

    async fn event(&self, watch: &mut Watch) -> (String, Value) {
        match self.format {
            Format::Json => watch.event().await,
            Format::Protobuf => {
                let frame = watch.frame().await.expect("the watch goes on");
                Format::read_frame(self.version.shape, &frame)
            }
        }
    }

    /// A new object, the field of its spec that changes, and the values that it changes to.
    fn subject(&self) -> (Value, [&'static str; 2], [u32; 2]) {
        let (key, value) = self.label.split_once('=').unwrap();
        let labels = json!({key: value});
        let (mut object, at, values) = if self.kind.plural == FLOW_SCHEMA.plural {
            let object = json!({"spec": {
                "matchingPrecedence": 10000,
                "priorityLevelConfiguration": {"name": "global-default"},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{
                    "subjects": [
                        {"kind": "User", "user": {"name": "example-e2e-non-existent-user"}}
                    ],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }],
            }});
            (object, ["", "matchingPrecedence"], [9999, 9000])
        } else {
            let shares = "nominalConcurrencyShares";
            let object = json!({"spec": {"type": "Limited", "limited": {
                shares: 2,
                "limitResponse": {"type": "Reject"},
            }}});
            (object, ["limited", shares], [4, 6])
        };
        object["apiVersion"] = json!(self.kind.api_version(self.version.name));
        object["kind"] = json!(self.kind.kind);
        object["metadata"] = json!({"generateName": "e2e-example-", "labels": labels});
        (object, at, values)
    }

    async fn run(&self) {
        self.discover().await;
        // Deleting nothing is no failure.
        let none = self.delete(&self.by_label("")).await;
        assert!(none.status.is_success(), "{none:?}");

        let (object, field, values) = self.subject();
        let mut created = Value::Null;
        for _ in 0..3 {
            created = self.read(&self.write(Method::POST, &self.path(""), &object).await);
        }
        let got = self.read(&self.get(&self.path(&format!("/{}", name(&created)))).await);
        assert_eq!(got["metadata"]["uid"], created["metadata"]["uid"]);
        assert!(version(&got) > 0);

        let listed = self.list().await;
        assert_eq!(listed["items"].as_array().unwrap().len(), 3);
        let from = format!("&watch=true&resourceVersion={}", version(&listed));
        let target = self.by_label(&from);
        let mut watch = self.api.watch_as(&target, self.watches()).await;
        self.try_changes(&created, field, values).await;
        loop {
            let (ty, object) = self.event(&mut watch).await;
            assert_eq!(ty, "MODIFIED", "{object}");
            assert_eq!(object["kind"], self.kind.kind);
            if object["metadata"]["annotations"]["patched"] == "true" {
                break;
            }
        }
        drop(watch);
        self.try_status(name(&created), &created).await;
        self.try_deletions(name(&created)).await;
    }

    /// Patches and then updates a field of the spec.
    async fn try_changes(
        &self,
        created: &Value,
        [outer, inner]: [&str; 2],
        [patched_to, updated_to]: [u32; 2],
    ) {
        let number = |object: &Value| match outer {
            "" => object["spec"][inner].clone(),
            outer => object["spec"][outer][inner].clone(),
        };
        let spec = match outer {
            "" => json!({inner: patched_to}),
            outer => json!({outer: {inner: patched_to}}),
        };
        let name = name(created);
        let patch = json!({"metadata": {"annotations": {"patched": "true"}}, "spec": spec});
        let patched = self.patch(&self.path(&format!("/{name}")), &patch).await;
        assert_eq!(patched["metadata"]["annotations"]["patched"], "true");
        assert_eq!(number(&patched), patched_to);
        assert!(version(created) < version(&patched));

        let updated = self.update(name, "", |object| {
            object["metadata"]["annotations"]["updated"] = json!("true");
            match outer {
                "" => object["spec"][inner] = json!(updated_to),
                outer => object["spec"][outer][inner] = json!(updated_to),
            }
        });
        let updated = updated.await;
        assert_eq!(updated["metadata"]["annotations"]["updated"], "true");
        assert_eq!(number(&updated), updated_to);
    }

    /// Deletes the object, and then the two others by their label.
    async fn try_deletions(&self, name: &str) {
        let item = self.path(&format!("/{name}"));
        let gone = self.delete(&item).await;
        assert!(gone.status.is_success(), "{gone:?}");
        self.api.get(&item).await.refused(404, "NotFound");
        assert_eq!(self.count().await, 2);

        let rest = self.delete(&self.by_label("")).await;
        assert!(rest.status.is_success(), "{rest:?}");
        assert_eq!(self.count().await, 0);
    }

    fn watches(&self) -> &'static str {
        match self.format {
            Format::Json => "application/json",
            Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    async fn discover(&self) {
        let has = |versions: &Value| {
            let versions = versions.as_array().unwrap();
            versions
                .iter()
                .any(|version| version["version"] == self.version.name)
        };
        let groups = self.api.get("/apis").await.object();
        let groups = groups["groups"].as_array().unwrap();
        let group = groups.iter().find(|group| group["name"] == self.kind.group);
        assert!(has(&group.unwrap()["versions"]), "{groups:?}");

        let group = self.api.get(&format!("/apis/{}", self.kind.group)).await;
        assert!(has(&group.object()["versions"]), "{group:?}");

        let api_version = self.kind.api_version(self.version.name);
        let resources = self.api.get(&format!("/apis/{api_version}")).await.object();
        for expected in [
            self.kind.plural.to_owned(),
            format!("{}/status", self.kind.plural),
        ] {
            let resources = resources["resources"].as_array().unwrap();
            let found = resources
                .iter()
                .any(|resource| resource["name"] == expected);
            assert!(found, "{expected}: {resources:?}");
        }
    }

    async fn try_status(&self, name: &str, created: &Value) {
        let target = self.path(&format!("/{name}/status"));
        let got = self.api.get(&target).await.object();
        let api_version = self.kind.api_version(self.version.name);
        assert_eq!(got["apiVersion"], api_version);
        assert_eq!(got["kind"], self.kind.kind);
        assert_eq!(got["metadata"]["uid"], created["metadata"]["uid"]);

        let failed = json!({"type": "PatchStatusFailed", "status": "False", "reason": "e2e"});
        let patch = json!({"status": {"conditions": [failed]}});
        let patched = self.patch(&target, &patch).await;
        let found = condition(&patched, "PatchStatusFailed").unwrap();
        assert_eq!(found["status"], "False");

        let updated = self.update(name, "/status", |object| {
            let conditions = object["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(json!({
                "type": "StatusUpdateFailed",
                "status": "False",
                "reason": "E2E",
                "message": "Set from an e2e test",
            }));
        });
        let updated = updated.await;
        let found = condition(&updated, "StatusUpdateFailed").unwrap();
        assert_eq!(found["message"], "Set from an e2e test");
        assert!(condition(&updated, "PatchStatusFailed").is_some());
    }
}

/// Runs the tests of API operations against a server.
pub(super) async fn supports_api_operations(server: &Server) {
    let api = server.root().await;
    for kind in [&FLOW_SCHEMA, &PRIORITY_LEVEL] {
        for version in kind.versions {
            for format in Format::BOTH {
                let label = format!("example-e2e-label={}-{format:?}", version.name);
                let replay = Replay {
                    api: &api,
                    kind,
                    version,
                    format,
                    label,
                };
                replay.run().await;
            }
        }
    }
}

/// Checks that new objects classify requests.
pub(super) async fn classifies_by_new_objects(server: &Server) {
    let (root, noxu) = (server.root().await, server.as_user("noxu").await);
    let level = level("e2e-testing-prioritylevel", 1);
    let level = root.post(LEVELS, &level).await.object();
    let schema = schema(
        "e2e-testing-flowschema",
        "e2e-testing-prioritylevel",
        1000,
        "noxu",
    );
    let schema = root.post(SCHEMAS, &schema).await.object();
    until(async || {
        let target = format!("{SCHEMAS}/e2e-testing-flowschema");
        let schema = root.get(&target).await.object();
        condition(&schema, "Dangling").is_some_and(|condition| condition["status"] == "False")
    })
    .await;
    until(async || {
        let seats = "apiserver_flowcontrol_nominal_limit_seats";
        let label = "priority_level=\"e2e-testing-prioritylevel\"";
        server.metric(seats, label).await.is_some()
    })
    .await;

    let uids = |response: &ApiResponse| {
        ["flowschema", "prioritylevel"].map(|of| {
            response
                .header(&format!("x-kubernetes-pf-{of}-uid"))
                .to_owned()
        })
    };
    let wanted = [&schema, &level].map(|object| object["metadata"]["uid"].as_str().unwrap());
    // The level may be in force before the schema.
    until(async || uids(&noxu.get("/version").await) == wanted).await;
    let others = uids(&server.as_user("alice").await.get("/version").await);
    assert!(others.iter().all(|uid| !uid.is_empty()), "{others:?}");
    assert_ne!(others, wanted);
    for (path, object) in [(SCHEMAS, schema), (LEVELS, level)] {
        let gone = root.delete(&format!("{path}/{}", name(&object))).await;
        assert!(gone.status.is_success(), "{gone:?}");
    }
}

#[tokio::test]
async fn the_api_operations_of_both_kinds_are_supported_in_both_versions_and_formats() {
    let home = Home::new();
    let server = home.start().await;
    supports_api_operations(&server).await;
}

#[tokio::test]
async fn requests_are_classified_by_new_objects() {
    let home = Home::new();
    let server = home.start().await;
    classifies_by_new_objects(&server).await;
}
