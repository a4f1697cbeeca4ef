//! Disruption budgets: a kind with namespaces.

use http::Method;
use serde_json::{Value, json};

use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;

use super::{
    Home, Server,
    api::{APPLY, Api, JSON, Watch},
    format::Format,
    name, version,
};

pub(super) const POLICY: &str = "/apis/policy/v1";
const EVERYWHERE: &str = "/apis/policy/v1/poddisruptionbudgets";
const SHOP: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
const BANK: &str = "/apis/policy/v1/namespaces/bank/poddisruptionbudgets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn budget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": spec,
    })
}

pub(super) fn web(name: &str) -> Value {
    budget(
        name,
        &json!({"minAvailable": "50%", "selector": {"matchLabels": {"app": name}}}),
    )
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    let full = |item: &Value| {
        format!(
            "{}/{}",
            item["metadata"]["namespace"].as_str().unwrap(),
            name(item)
        )
    };
    items.map(full).collect()
}

async fn next(watch: &mut Watch) -> (String, String) {
    let (ty, object) = watch.next().await.unwrap();
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    (ty, format!("{namespace}/{}", name(&object)))
}

/// The objects of all namespaces, read in pages of one.
async fn paged(api: &Api) -> Vec<String> {
    let mut target = format!("{EVERYWHERE}?limit=1");
    let mut pages = Vec::new();
    loop {
        let page = api.get(&target).await.object();
        pages.extend(names(&page));
        let Some(token) = page["metadata"]["continue"].as_str() else {
            break;
        };
        target = format!("{EVERYWHERE}?limit=1&continue={token}");
    }
    pages
}

/// Lists selections of `bank/a`, `bank/b` and `shop/a`.
async fn selections_cross_namespaces(api: &Api) {
    for (query, found) in [
        (
            "fieldSelector=metadata.namespace=bank",
            vec!["bank/a", "bank/b"],
        ),
        ("fieldSelector=metadata.name=a", vec!["bank/a", "shop/a"]),
        (
            "fieldSelector=metadata.name=a,metadata.namespace=shop",
            vec!["shop/a"],
        ),
        ("labelSelector=app=b", vec!["bank/b"]),
    ] {
        let list = api.get(&format!("{EVERYWHERE}?{query}")).await.object();
        assert_eq!(names(&list), found, "{query}");
    }
}

/// Checks that both stores must pass.
pub async fn supports_namespaced_operations(server: &Server) {
    let api = server.root().await;
    let start = api.get(EVERYWHERE).await.object();
    let from = format!("watch=true&resourceVersion={}", version(&start));
    let mut everywhere = api.watch(&format!("{EVERYWHERE}?{from}")).await;
    let mut shop = api.watch(&format!("{SHOP}?{from}")).await;
    let field = format!("fieldSelector=metadata.namespace=bank&{from}");
    let mut bank = api.watch(&format!("{EVERYWHERE}?{field}")).await;

    // Names are unique in a namespace.
    let created = api.post(SHOP, &web("a")).await;
    assert_eq!(created.status, 201, "{created:?}");
    let object = created.object();
    assert_eq!(object["metadata"]["namespace"], "shop");
    assert_eq!(object["metadata"]["generation"], 1);
    let zeros = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
    assert_eq!(object["status"], zeros);
    api.post(SHOP, &web("a"))
        .await
        .refused(409, "AlreadyExists");
    assert_eq!(api.post(BANK, &web("a")).await.status, 201);
    assert_eq!(api.post(BANK, &web("b")).await.status, 201);
    api.get(&format!("{SHOP}/b")).await.refused(404, "NotFound");
    assert_eq!(api.get(&format!("{BANK}/b")).await.status, 200);

    let all = api.get(EVERYWHERE).await.object();
    assert_eq!(names(&all), ["bank/a", "bank/b", "shop/a"]);
    assert_eq!(names(&api.get(SHOP).await.object()), ["shop/a"]);
    selections_cross_namespaces(&api).await;
    assert_eq!(paged(&api).await, ["bank/a", "bank/b", "shop/a"]);

    for expected in ["shop/a", "bank/a", "bank/b"] {
        assert_eq!(
            next(&mut everywhere).await,
            ("ADDED".into(), expected.into())
        );
    }
    assert_eq!(next(&mut shop).await, ("ADDED".into(), "shop/a".into()));
    for expected in ["bank/a", "bank/b"] {
        assert_eq!(next(&mut bank).await, ("ADDED".into(), expected.into()));
    }

    // Writes over all namespaces are not allowed.
    for method in [Method::POST, Method::DELETE, Method::PUT] {
        let response = api
            .call(method, EVERYWHERE, JSON, web("x").to_string())
            .await;
        response.refused(405, "MethodNotAllowed");
    }
    let deleted = api.delete(&format!("{BANK}?labelSelector=app")).await;
    assert_eq!(names(&deleted.object()), ["bank/a", "bank/b"]);
    assert_eq!(names(&api.get(EVERYWHERE).await.object()), ["shop/a"]);
    for expected in ["bank/a", "bank/b"] {
        assert_eq!(
            next(&mut everywhere).await,
            ("DELETED".into(), expected.into())
        );
    }
    assert_eq!(api.delete(&format!("{SHOP}/a")).await.status, 200);
    assert_eq!(next(&mut shop).await, ("DELETED".into(), "shop/a".into()));
}

#[tokio::test]
async fn budgets_are_stored_by_namespace() {
    let home = Home::new();
    supports_namespaced_operations(&home.start().await).await;
}

#[tokio::test]
async fn x09_budgets_are_listed_by_label_everywhere_and_deleted_in_one_namespace() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for (at, collection) in [(0, SHOP), (1, SHOP), (2, BANK)] {
        let mut one = web(&format!("budget-{at}"));
        one["metadata"]["labels"] = json!({"testcase": "x9"});
        assert_eq!(api.post(collection, &one).await.status, 201);
    }
    assert_eq!(api.post(SHOP, &web("other")).await.status, 201);
    let labelled = format!("{EVERYWHERE}?labelSelector=testcase%3Dx9");
    assert_eq!(names(&api.get(&labelled).await.object()).len(), 3);
    let in_shop = format!("{SHOP}?labelSelector=testcase%3Dx9");
    assert_eq!(names(&api.get(&in_shop).await.object()).len(), 2);
    api.delete(&in_shop).await.object();
    assert_eq!(names(&api.get(&in_shop).await.object()), [""; 0]);
    let left = names(&api.get(&labelled).await.object());
    assert_eq!(left, ["bank/budget-2"]);
}

#[tokio::test]
async fn v11_spec_and_status_are_written_separately() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = format!("{SHOP}/a");
    api.put(&target, &web("a")).await.refused(404, "NotFound");
    let mut with_status = web("a");
    with_status["status"] = json!({"disruptionsAllowed": 7});
    let created = api.post(SHOP, &with_status).await.object();
    assert_eq!(created["status"]["disruptionsAllowed"], 0);

    // There is no unconditional update.
    let reported = api.put(&target, &web("a")).await;
    assert_eq!(
        reported.refused(422, "Invalid"),
        "poddisruptionbudgets.policy \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
         specified for an update"
    );
    let mut changed = created.clone();
    changed["spec"]["minAvailable"] = json!(2);
    changed["status"]["expectedPods"] = json!(9);
    let changed = api.put(&target, &changed).await.object();
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(changed["spec"]["minAvailable"], 2);
    assert_eq!(changed["status"]["expectedPods"], 0);
    api.put(&target, &created).await.refused(409, "Conflict");

    let mut status = changed.clone();
    status["spec"]["minAvailable"] = json!(9);
    status["metadata"]["labels"]["by"] = json!("controller");
    status["status"] = json!({
        "observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2,
        "expectedPods": 3, "disruptedPods": {"p": "2026-01-01T00:00:00Z"},
        "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
            "message": "", "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    let written = api.put(&format!("{target}/status"), &status).await.object();
    assert_eq!(written["status"], status["status"]);
    assert_eq!(written["spec"], changed["spec"]);
    assert_eq!(written["metadata"]["generation"], 2);
    assert_eq!(written["metadata"]["labels"]["by"], "controller");
    status["metadata"] = written["metadata"].clone();
    status["status"]["currentHealthy"] = json!(-1);
    let reported = api.put(&format!("{target}/status"), &status).await;
    assert_eq!(
        reported.refused(422, "Invalid"),
        "PodDisruptionBudget.policy \"a\" is invalid: status.currentHealthy: Invalid value: -1: must be \
         greater than or equal to 0"
    );

    // A strategic merge patch replaces the selector as a whole.
    let patch =
        json!({"spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}});
    let strategic = "application/strategic-merge-patch+json";
    let reported = api
        .call(Method::PATCH, &target, strategic, patch.to_string())
        .await;
    assert_eq!(
        reported.object()["spec"]["selector"],
        patch["spec"]["selector"]
    );
}

#[tokio::test]
async fn a_budget_is_applied_and_owned_by_field() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = |manager: &str| format!("{SHOP}/a?fieldManager={manager}");
    let reported = api
        .call(Method::PATCH, &target("one"), APPLY, web("a").to_string())
        .await;
    assert_eq!(reported.status, 201, "{reported:?}");
    let mut other = web("a");
    other["spec"] = json!({"minAvailable": 1});
    let reported = api
        .call(Method::PATCH, &target("two"), APPLY, other.to_string())
        .await;
    assert_eq!(
        reported.refused(409, "Conflict"),
        "Apply failed with 1 conflict: conflict with \"one\": .spec.minAvailable"
    );
    let forced = format!("{}&force=true", target("two"));
    let object = api
        .call(Method::PATCH, &forced, APPLY, other.to_string())
        .await
        .object();
    assert_eq!(object["spec"]["minAvailable"], 1);
    assert_eq!(object["spec"]["selector"]["matchLabels"]["app"], "a");
}

#[tokio::test]
async fn an_invalid_budget_is_refused_with_its_causes() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let spec = json!({"minAvailable": "x", "selector": {"matchExpressions": [
        {"key": "k", "operator": "In", "values": ["-"]}]}, "unhealthyPodEvictionPolicy": "Never"});
    let reported = api.post(SHOP, &budget("a", &spec)).await;
    let message = reported.refused(422, "Invalid");
    assert!(
        message.starts_with("PodDisruptionBudget.policy \"a\" is invalid: [spec.minAvailable: ")
    );
    let fields: Vec<Value> = reported.json()["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| cause["field"].clone())
        .collect();
    let expected = [
        "spec.minAvailable",
        "spec.selector.matchExpressions[0].values[0]",
        "spec.unhealthyPodEvictionPolicy",
    ];
    assert_eq!(fields, expected);
    // Names are only checked as segments of a path.
    let mut odd = budget("Odd_Name:1", &json!({}));
    odd["metadata"]["labels"] = json!({});
    let odd = api.post(SHOP, &odd).await;
    assert_eq!(odd.status, 201, "{odd:?}");
    api.post(SHOP, &budget("a/b", &json!({})))
        .await
        .refused(422, "Invalid");
    let mut elsewhere = web("a");
    elsewhere["metadata"]["namespace"] = json!("bank");
    assert_eq!(
        api.post(SHOP, &elsewhere).await.refused(400, "BadRequest"),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

#[tokio::test]
async fn budgets_are_shown_as_tables_and_in_protobuf() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    api.post(SHOP, &web("a")).await.object();
    api.post(SHOP, &budget("b", &json!({"maxUnavailable": 1})))
        .await
        .object();
    let request = api.request(Method::GET, SHOP).header("accept", TABLE);
    let table = api.send(request, "").await.object();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<&str> = columns
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    let expected = [
        "Name",
        "Min Available",
        "Max Unavailable",
        "Allowed Disruptions",
        "Age",
    ];
    assert_eq!(columns, expected);
    let cells = |row: usize| table["rows"][row]["cells"].as_array().unwrap()[..4].to_vec();
    assert_eq!(cells(0), [json!("a"), json!("50%"), json!("N/A"), json!(0)]);
    assert_eq!(cells(1), [json!("b"), json!("N/A"), json!("1"), json!(0)]);

    let version = POD_DISRUPTION_BUDGET.stored();
    let body = Format::Protobuf.write(version, &web("c"));
    let protobuf = Format::Protobuf.media_type();
    let reported = api.call(Method::POST, SHOP, protobuf, body).await;
    assert_eq!(reported.status, 201, "{reported:?}");
    let read = api.get(&format!("{SHOP}/c")).await.object();
    assert_eq!(read["spec"], web("c")["spec"]);
}

#[tokio::test]
async fn discovery_and_openapi_have_budgets() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let list = api.get(POLICY).await.object();
    let entry = &list["resources"][0];
    assert_eq!(entry["shortNames"], json!(["pdb"]));
    assert_eq!(entry["namespaced"], true);
    assert_eq!(entry["storageVersionHash"], "EVWiDmWqyJw=");
    assert_eq!(list["resources"][1]["name"], "poddisruptionbudgets/status");
    let v3 = api.get("/openapi/v3/apis/policy/v1").await.object();
    let path = "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}/status";
    let id = &v3["paths"][path]["patch"]["operationId"];
    assert_eq!(id, "patchPolicyV1NamespacedPodDisruptionBudgetStatus");
}

#[tokio::test]
async fn a_denial_names_the_namespace() {
    let home = Home::new();
    let server = home.start().await;
    let alice = server.as_user("alice").await;
    assert_eq!(
        alice
            .get(&format!("{SHOP}/a"))
            .await
            .refused(403, "Forbidden"),
        "poddisruptionbudgets.policy \"a\" is forbidden: User \"alice\" cannot get resource \
         \"poddisruptionbudgets\" in API group \"policy\" in the namespace \"shop\""
    );
    let reader: Api = server.as_user("reader").await;
    assert_eq!(reader.get(EVERYWHERE).await.status, 200);
    reader.post(SHOP, &web("a")).await.refused(403, "Forbidden");
}
