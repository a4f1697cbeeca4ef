//! Discovery against documents of kube-apiserver 1.36.

use serde_json::{Value, json};

use crate::{
    ownership::OwnedResources,
    raw_json::{raw, value},
};

use super::{AggregatedVersion, etag, plain};
use fairgate_objects::{
    kind::{Kind, KindVersion, Storage},
    kinds::{FLOW_CONTROL as KINDS, FLOW_SCHEMA, PRIORITY_LEVEL},
    schema::{Struct, TypePackage},
};

/// The kinds of the goldens: those of flow control in `v1` alone, one that lives in namespaces, one
/// that is not stored.
pub(crate) fn golden_kinds() -> Vec<&'static Kind> {
    let budget = leak(Kind {
        group: "policy",
        kind: "PodDisruptionBudget",
        list_kind: "PodDisruptionBudgetList",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        namespaced: true,
        versions: leak([shaped("PodDisruptionBudget")]),
        ..v1_of(&FLOW_SCHEMA)
    });
    let review = leak(Kind {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        list_kind: "",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        has_status: false,
        storage: Storage::CreateOnly,
        versions: leak([shaped("SelfSubjectReview")]),
        ..v1_of(&FLOW_SCHEMA)
    });
    vec![
        leak(v1_of(&PRIORITY_LEVEL)),
        leak(v1_of(&FLOW_SCHEMA)),
        budget,
        review,
    ]
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The `v1` of a kind whose fields do not matter.
fn shaped(name: &'static str) -> KindVersion {
    KindVersion {
        shape: leak(Struct::new(name, TypePackage::GroupVersion, &[])),
        ..version(FLOW_SCHEMA.stored())
    }
}

fn v1_of(kind: &'static Kind) -> Kind {
    Kind {
        versions: leak([version(kind.version("v1").unwrap())]),
        ..*kind
    }
}

fn version(version: &KindVersion) -> KindVersion {
    KindVersion { ..*version }
}

/// The aggregated documents as values.
mod aggregated {
    use super::{super::aggregated, AggregatedVersion, Kind, Value, raw, value};

    pub(super) fn apis(kinds: &[&Kind], form: AggregatedVersion) -> Value {
        value(&raw(&aggregated::apis(kinds, form)))
    }

    pub(super) fn api(kinds: &[&Kind], form: AggregatedVersion) -> Value {
        value(&raw(&aggregated::api(kinds, form)))
    }
}

fn merge_group_list(upstream: &Value, own: &Value) -> Value {
    value(&super::merge_group_list(&raw(upstream), &raw(own)))
}

fn merge_aggregated(upstream: &Value, own: &Value) -> Value {
    let (upstream, own) = (raw(upstream), raw(own));
    value(&super::merge_aggregated(&upstream, &own, &owned()))
}

fn golden(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn plain_documents_are_those_of_the_real_server() {
    let golden = golden(include_str!("goldens/plain.json"));
    let kinds = golden_kinds();
    for (path, expected) in golden.as_object().unwrap() {
        let parts: Vec<&str> = path.split('/').skip(2).collect();
        let ours = match parts[..] {
            [] => Some(plain::group_list(&kinds)),
            [group] => plain::group(&kinds, group),
            [group, version] => plain::resource_list(&kinds, group, version),
            _ => None,
        };
        assert_eq!(ours.as_ref(), Some(expected), "{path}");
    }
}

#[test]
fn the_aggregated_document_is_that_of_the_real_server() {
    let golden = golden(include_str!("goldens/aggregated.json"));
    assert_eq!(
        aggregated::apis(&golden_kinds(), AggregatedVersion::V2),
        golden
    );
}

#[test]
fn the_older_aggregated_document_differs_in_its_name_alone() {
    let mut older = aggregated::apis(&KINDS, AggregatedVersion::V2Beta1);
    assert_eq!(older["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    older["apiVersion"] = json!("apidiscovery.k8s.io/v2");
    assert_eq!(older, aggregated::apis(&KINDS, AggregatedVersion::V2));
}

#[test]
fn a_group_lists_its_preferred_version_first() {
    let group = plain::group(&KINDS, "flowcontrol.apiserver.k8s.io").unwrap();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"][0]["version"], "v1");
    assert_eq!(group["versions"][1]["version"], "v1beta3");
}

#[test]
fn an_older_version_shows_the_hash_of_the_stored_one() {
    let group = "flowcontrol.apiserver.k8s.io";
    let v1 = plain::resource_list(&KINDS, group, "v1").unwrap();
    let v1beta3 = plain::resource_list(&KINDS, group, "v1beta3").unwrap();
    assert_eq!(v1["resources"], v1beta3["resources"]);
    assert_eq!(
        v1beta3["resources"][0]["storageVersionHash"],
        "GJVAJZSZBIw="
    );
}

#[test]
fn there_is_no_document_of_what_is_not_served() {
    let group = "flowcontrol.apiserver.k8s.io";
    assert_eq!(plain::group(&KINDS, "apps"), None);
    assert_eq!(plain::group(&KINDS, ""), None);
    assert_eq!(plain::resource_list(&KINDS, group, "v1beta2"), None);
    assert_eq!(plain::resource_list(&KINDS, "", "v2"), None);
}

#[test]
fn an_empty_core_group_is_not_listed() {
    assert_eq!(
        plain::api_versions(&KINDS, "gate:6443"),
        json!({
            "kind": "APIVersions",
            "versions": [],
            "serverAddressByClientCIDRs": [
                { "clientCIDR": "0.0.0.0/0", "serverAddress": "gate:6443" },
            ],
        })
    );
    assert_eq!(plain::resource_list(&KINDS, "", "v1"), None);
    assert_eq!(
        aggregated::api(&KINDS, AggregatedVersion::V2)["items"],
        json!([])
    );
}

/// A kind of the core group, with the name of one that every cluster has.
fn pods() -> &'static Kind {
    leak(Kind {
        group: "",
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        namespaced: true,
        has_status: false,
        ..v1_of(&FLOW_SCHEMA)
    })
}

#[test]
fn the_core_group_is_under_api_alone() {
    let kinds = [&FLOW_SCHEMA, pods()];
    assert_eq!(plain::api_versions(&kinds, "")["versions"], json!(["v1"]));
    assert_eq!(
        plain::resource_list(&kinds, "", "v1").unwrap(),
        json!({
            "kind": "APIResourceList",
            "groupVersion": "v1",
            "resources": [{
                "name": "pods",
                "singularName": "pod",
                "namespaced": true,
                "kind": "Pod",
                "verbs": [
                    "create", "delete", "deletecollection", "get", "list", "patch", "update",
                    "watch",
                ],
                "shortNames": ["po"],
                "categories": ["all"],
                "storageVersionHash": "xPOwRZ+Yhw8=",
            }],
        })
    );
    assert_eq!(
        plain::group_list(&kinds)["groups"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert!(
        plain::paths(&kinds, &[])
            .to_string()
            .contains("\"/api/v1\"")
    );

    let core = aggregated::api(&kinds, AggregatedVersion::V2);
    assert_eq!(core["items"][0]["metadata"], json!({}));
    assert_eq!(
        core["items"][0]["versions"][0]["resources"][0]["resource"],
        "pods"
    );
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        aggregated::apis(&kinds, AggregatedVersion::V2),
        aggregated::apis(&[&FLOW_SCHEMA], AggregatedVersion::V2)
    );
}

#[test]
fn the_root_lists_all_paths_in_order() {
    let document = plain::paths(&KINDS, &["/livez", "/healthz"]);
    assert_eq!(
        document["paths"],
        json!([
            "/api",
            "/apis",
            "/apis/",
            "/apis/flowcontrol.apiserver.k8s.io",
            "/apis/flowcontrol.apiserver.k8s.io/v1",
            "/apis/flowcontrol.apiserver.k8s.io/v1beta3",
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            "/version",
        ])
    );
}

#[test]
fn an_entity_tag_is_a_quoted_upper_case_hash() {
    // From FIPS 180-2, appendix C.1.
    assert_eq!(
        etag("abc"),
        "\"DDAF35A193617ABACC417349AE20413112E6FA4E89A97EA20A9EEEE64B55D39A\
         2192992A274FC1A836BA3C23A3FEEBBD454D4423643CE80E2A9AC94FA54CA49F\""
    );
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

#[test]
fn clients_that_accept_the_aggregated_form_get_it() {
    for accept in [
        V2.to_owned(),
        format!("{V2},application/json"),
        format!("application/json,{V2}"),
        format!("*/*,{V2}"),
        format!("text/html,{V2}"),
        format!("{V2};q=0.5,application/json"),
        format!("{V2};q=0,application/yaml"),
        format!("{V2};profile=nopeer"),
        format!("{V2};pretty=1;foo=bar"),
        format!("{V2},{V2BETA1},application/json"),
        "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io".to_owned(),
        "application/json; g = apidiscovery.k8s.io ; v=v2;as=APIGroupDiscoveryList".to_owned(),
        "application/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned(),
        "*/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned(),
    ] {
        assert_eq!(
            AggregatedVersion::accepted(&accept),
            Some(AggregatedVersion::V2),
            "{accept}"
        );
    }
}

#[test]
fn the_plain_form_is_given_to_all_others() {
    for accept in [
        "",
        "application/json",
        "*/*",
        "application/json;as=APIGroupDiscoveryList",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;g=\"apidiscovery.k8s.io\";v=v2;as=APIGroupDiscoveryList",
        "application/json;G=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "Application/JSON;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList",
        ";,;=;q=,/",
    ] {
        assert_eq!(AggregatedVersion::accepted(accept), None, "{accept}");
    }
}

#[test]
fn of_two_forms_the_one_with_the_higher_q_is_chosen_and_then_the_first() {
    for (accept, form) in [
        (format!("{V2BETA1},{V2}"), AggregatedVersion::V2Beta1),
        (format!("{V2BETA1};q=0.5,{V2};q=0.7"), AggregatedVersion::V2),
        (format!("{V2BETA1};q=x,{V2};q=0.1"), AggregatedVersion::V2),
        (
            format!("{},{V2BETA1}", V2.replace("application/json", "*/*")),
            AggregatedVersion::V2Beta1,
        ),
    ] {
        assert_eq!(AggregatedVersion::accepted(&accept), Some(form), "{accept}");
    }
}

#[test]
fn our_group_takes_the_place_of_the_upstreams() {
    let upstream = golden(include_str!("goldens/plain.json"))["/apis"].take();
    let merged = merge_group_list(&upstream, &plain::group_list(&KINDS));
    assert_eq!(merged["groups"][0], upstream["groups"][0]);
    assert_eq!(merged["groups"][1], upstream["groups"][1]);
    assert_eq!(merged["groups"][2], plain::group_list(&KINDS)["groups"][0]);
    assert_eq!(merged["groups"].as_array().unwrap().len(), 3);
}

#[test]
fn our_group_is_inserted_by_its_priority() {
    let names = |upstream: &[&str]| {
        let groups: Vec<Value> = upstream
            .iter()
            .map(|name| json!({ "name": name }))
            .collect();
        let merged = merge_group_list(&json!({ "groups": groups }), &plain::group_list(&KINDS));
        let groups = merged["groups"].as_array().unwrap().clone();
        groups
            .iter()
            .map(|group| group["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let ours = "flowcontrol.apiserver.k8s.io";
    assert_eq!(names(&[]), [ours]);
    assert_eq!(names(&["apps", "a.b"]), ["apps", ours, "a.b"]);
    assert_eq!(names(&["z.a", "a.b"]), [ours, "z.a", "a.b"]);
    assert_eq!(names(&["apps", "policy"]), ["apps", "policy", ours]);
}

fn owned() -> OwnedResources {
    OwnedResources::new(&KINDS, &[])
}

#[test]
fn aggregated_documents_are_merged_in_the_same_way() {
    let upstream = json!({ "kind": "K", "items": [
        { "metadata": { "name": "apps" }, "versions": [] },
        { "metadata": { "name": "flowcontrol.apiserver.k8s.io" }, "versions": [] },
        { "metadata": { "name": "example.com" }, "versions": [] },
    ] });
    let ours = aggregated::apis(&KINDS, AggregatedVersion::V2);
    let merged = merge_aggregated(&upstream, &ours);
    assert_eq!(merged["kind"], "K");
    assert_eq!(merged["items"][0], upstream["items"][0]);
    assert_eq!(merged["items"][1], ours["items"][0]);
    assert_eq!(merged["items"][2], upstream["items"][2]);

    let core = json!({ "items": [{ "metadata": {}, "versions": [1] }] });
    let own = aggregated::api(&[pods()], AggregatedVersion::V2);
    let merged = merge_aggregated(&core, &own);
    assert_eq!(merged["items"].as_array().unwrap().len(), 1);
    assert_eq!(merged["items"][0]["versions"][0]["version"], "v1");
}

#[test]
fn an_upstream_of_another_shape_counts_as_empty() {
    let ours = plain::group_list(&KINDS);
    for upstream in [json!(null), json!([]), json!({}), json!({ "groups": 1 })] {
        assert_eq!(merge_group_list(&upstream, &ours), ours);
    }
    let odd = json!({ "groups": [1, { "name": [] }, null] });
    let merged = merge_group_list(&odd, &ours);
    assert_eq!(merged["groups"][3], ours["groups"][0]);
}
