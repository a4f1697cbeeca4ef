//! What an API server must have before a scenario runs against it: namespaces, the objects that paths name, and permissions.
//!
//! The stand-in server has every object that it is asked for. A real one answers 404, or 403 to users who may do nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::scenario::{
    ClientSpec, RequestSpec, Scenario,
    body::{self, LABEL},
    kinds::WrittenKind,
};
use fairgate_core::digest::RequestInfo;

/// Namespaces that every cluster has.
const PRESENT: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Those who may do everything.
const ADMINISTRATORS: &str = "system:masters";

/// The objects that a server must have for a scenario.
#[derive(Debug, Default)]
pub(crate) struct Requirements {
    namespaces: BTreeSet<String>,
    /// By their paths.
    objects: BTreeMap<String, Value>,
    /// The verbs for each group and resource, or for no group and a path.
    rules: BTreeMap<(Option<String>, String), BTreeSet<String>>,
    /// Paths of objects whose kind is not known.
    pub(crate) unknown: BTreeSet<String>,
}

impl Requirements {
    /// What `scenario` needs; with `lists` also the objects that its lists and watches find.
    pub(crate) fn of(scenario: &Scenario, lists: bool) -> Self {
        let mut needed = Self::default();
        for client in &scenario.clients {
            let is_administrator = client.groups.iter().any(|group| group == ADMINISTRATORS);
            for request in &client.requests {
                for user in 1..=client.users {
                    let info = request.info_of(user);
                    if !is_administrator {
                        needed.allow(&info);
                    }
                    needed.need(scenario, request, &info, lists);
                    // All of them send the same request then.
                    if !request.target.contains("{user}") {
                        break;
                    }
                }
            }
        }
        needed
    }

    /// All objects in an order in which they can be created, the flow schemas and priority levels of `scenario` last if `policy`
    /// asks for them.
    pub(crate) fn into_objects(self, scenario: &Scenario, policy: bool) -> Vec<Value> {
        let namespaces = self.namespaces.iter();
        let mut objects: Vec<Value> = namespaces
            .filter(|name| !PRESENT.contains(&name.as_str()))
            .map(|name| {
                json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "labels": {LABEL.0: LABEL.1}},
                })
            })
            .collect();
        objects.extend(self.permissions(scenario));
        objects.extend(self.objects.into_values());
        if policy {
            objects.extend(scenario.policy.iter().cloned());
        }
        objects
    }

    fn allow(&mut self, info: &RequestInfo) {
        let rule = if info.is_resource {
            let resource = match text(info.subresource()).as_str() {
                "" => text(info.resource()),
                subresource => format!("{}/{subresource}", text(info.resource())),
            };
            (Some(text(info.group())), resource)
        } else {
            (None, text(info.path()))
        };
        let verbs = self.rules.entry(rule).or_default();
        verbs.insert(info.verb.as_str().to_owned());
    }

    fn need(
        &mut self,
        scenario: &Scenario,
        request: &RequestSpec,
        info: &RequestInfo,
        lists: bool,
    ) {
        if !info.is_resource {
            return;
        }
        let namespace = text(info.namespace());
        if !namespace.is_empty() && info.resource() != b"namespaces" {
            self.namespaces.insert(namespace.clone());
        }
        if matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
            if lists {
                self.need_list(scenario, request, info);
            }
            return;
        }
        if info.name().is_empty() {
            return;
        }
        if info.subresource().is_empty() {
            self.need_object(scenario, request.written.as_ref(), info);
        } else if let Some(parent) = parent(info) {
            self.need_object(scenario, WrittenKind::of(&parent), &parent);
        }
    }

    /// The objects of a list: in the namespace `default` if it is over all namespaces.
    fn need_list(&mut self, scenario: &Scenario, request: &RequestSpec, info: &RequestInfo) {
        let (count, _) = scenario.upstream.objects_of(info);
        let Some(kind) = request.written.as_ref().filter(|_| count > 0) else {
            return;
        };
        let path = text(info.path());
        let resource = text(info.resource());
        let collection = match info.namespace() {
            b"" if !kind.cluster_scoped => {
                let (before, _) = path.rsplit_once('/').unwrap_or_default();
                format!("{before}/namespaces/default/{resource}")
            }
            _ => path,
        };
        for number in 1..=count {
            let target = format!("{collection}/{resource}-{number}");
            if let Ok(info) = RequestInfo::from_target("GET", &target) {
                self.need_object(scenario, Some(kind), &info);
            }
        }
    }

    fn need_object(&mut self, scenario: &Scenario, kind: Option<&WrittenKind>, info: &RequestInfo) {
        let path = text(info.path());
        let Some(kind) = kind else {
            self.unknown.insert(path);
            return;
        };
        let is_present = kind.kind == "Namespace" && PRESENT.contains(&&*text(info.name()));
        if kind.bare || is_present || self.objects.contains_key(&path) {
            return;
        }
        let (_, bytes) = scenario.upstream.objects_of(info);
        self.objects
            .insert(path, body::sized_object(kind, info, bytes as usize));
    }

    /// A role with what all users together may do, and its binding.
    fn permissions(&self, scenario: &Scenario) -> Vec<Value> {
        // One role for all: a scenario says who sends what, not who may.
        let name = format!("fairgate-loadtest-{}", scenario.name);
        let metadata = json!({"name": name, "labels": {LABEL.0: LABEL.1}});
        let rules: Vec<Value> = self
            .rules
            .iter()
            .map(|((group, what), verbs)| match group {
                Some(group) => json!({"apiGroups": [group], "resources": [what], "verbs": verbs}),
                None => json!({"nonResourceURLs": [what], "verbs": verbs}),
            })
            .collect();
        let users = scenario.clients.iter().flat_map(ClientSpec::user_names);
        let subjects: Vec<Value> = users
            .map(|user| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}))
            .collect();
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        vec![
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": metadata, "rules": rules,
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": metadata, "roleRef": role, "subjects": subjects,
            }),
        ]
    }
}

/// The request for the object that has the subresource of `info`.
fn parent(info: &RequestInfo) -> Option<RequestInfo> {
    let (path, name) = (text(info.path()), text(info.name()));
    let end = path.rfind(&format!("/{name}/"))? + 1 + name.len();
    RequestInfo::from_target("GET", &path[..end]).ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    fn scenario(clients: &str, objects: &str) -> Scenario {
        let text = format!(
            "apiVersion: fairgate.dev/v1alpha1\nkind: Scenario\ntitle: Needs\nclients: {clients}\n\
             upstream: {{objects: {objects}}}\nexpect: [all.errors == 0]\n"
        );
        parse("needs.yaml", "needs", text.as_bytes())
            .usable()
            .unwrap()
    }

    /// The kinds, namespaces and names of what a scenario needs.
    fn names(scenario: &Scenario, lists: bool) -> Vec<String> {
        let needed = Requirements::of(scenario, lists);
        assert!(needed.unknown.is_empty(), "{:?}", needed.unknown);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let objects = needed.into_objects(scenario, false);
        let names = objects.iter().map(|object| {
            let metadata = &object["metadata"];
            let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
            format!("{} {namespace}/{name}", text(&object["kind"]))
        });
        names.collect()
    }

    #[test]
    fn namespaces_come_first_then_permissions_then_objects() {
        let scenario = scenario(
            "[{name: a, users: 2, load: {closed: {threads: 1}}, requests: [
                {path: '/api/v1/namespaces/team-{user}/configmaps/c'},
                {verb: update, path: /api/v1/nodes/n/status},
                {verb: create, path: /api/v1/namespaces/default/secrets},
                {verb: list, path: /api/v1/namespaces/kube-system/pods}]}]",
            "[{resource: pods, count: 2}]",
        );
        let expected = [
            "Namespace /team-1",
            "Namespace /team-2",
            "ClusterRole /fairgate-loadtest-needs",
            "ClusterRoleBinding /fairgate-loadtest-needs",
            "ConfigMap team-1/c",
            "ConfigMap team-2/c",
            "Node /n",
        ];
        assert_eq!(names(&scenario, false), expected);
        let mut with_lists = expected.to_vec();
        with_lists.splice(4..4, ["Pod kube-system/pods-1", "Pod kube-system/pods-2"]);
        with_lists.sort_unstable();
        let mut found = names(&scenario, true);
        found.sort_unstable();
        assert_eq!(found, with_lists);
    }

    #[test]
    fn users_may_do_what_they_ask_for_and_nothing_else() {
        let scenario = scenario(
            "[{name: a, users: 2, load: {closed: {threads: 1}}, requests: [
                {path: /api/v1/namespaces/x/pods/p}, {verb: delete, path: /api/v1/namespaces/x/pods/p},
                {verb: update, path: /apis/apps/v1/namespaces/x/deployments/d/scale}, {path: /healthz}]},
              {name: root, groups: ['system:masters'], load: {closed: {threads: 1}}, requests: [
                {verb: list, path: /api/v1/secrets}]}]",
            "[]",
        );
        let objects = Requirements::of(&scenario, false).into_objects(&scenario, false);
        assert_eq!(
            objects[1]["rules"],
            json!([
                {"nonResourceURLs": ["/healthz"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "get"]},
                {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["update"]},
            ])
        );
        let subjects = objects[2]["subjects"].as_array().unwrap();
        let names: Vec<&Value> = subjects.iter().map(|subject| &subject["name"]).collect();
        assert_eq!(names, ["a-1", "a-2", "root"]);
    }

    #[test]
    fn objects_are_as_large_as_the_scenario_says() {
        let scenario = scenario(
            "[{name: a, load: {closed: {threads: 1}}, requests: [{path: /api/v1/namespaces/x/configmaps/c}]}]",
            "[{resource: configmaps, bytes: 3000}]",
        );
        let objects = Requirements::of(&scenario, false).into_objects(&scenario, false);
        assert_eq!(objects[3].to_string().len(), 3000);
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        let scenario = scenario(
            "[{name: a, load: {closed: {threads: 1}}, requests: [{path: /apis/example.com/v1/widgets/w}]}]",
            "[]",
        );
        let needed = Requirements::of(&scenario, false);
        assert_eq!(
            needed.unknown,
            ["/apis/example.com/v1/widgets/w".to_owned()].into()
        );
    }
}
