//! OpenAPI documents against those of kube-apiserver 1.36, and their protobuf against gnostic's.

use serde_json::{Value, json};

use super::{merged_hash, v2, v2_proto, v3, v3_proto};
use crate::{
    discovery::{self, tests::golden_kinds},
    ownership::OwnedResources,
    raw_json::{raw, value},
};
use fairgate_objects::kinds::FLOW_CONTROL as KINDS;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

fn owned() -> OwnedResources {
    OwnedResources::new(&KINDS, &[])
}

fn merge_v3_index(upstream: &Value, own: &Value) -> Value {
    value(&super::merge_v3_index(&raw(upstream), &raw(own)))
}

fn merge_v3(upstream: &Value, own: &Value) -> Value {
    value(&super::merge_v3(&raw(upstream), &raw(own), &owned()))
}

fn merge_v2(upstream: &Value, own: &Value) -> Value {
    value(&super::merge_v2(&raw(upstream), &raw(own), &owned()))
}

fn golden(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Without descriptions, which are our own, and without `shardInfo`, a field that is off by default.
fn comparable(mut document: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, value| {
                    !(key == "description" && value.is_string())
                        && key != "shardInfo"
                        && !key.ends_with(".ShardInfo")
                });
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut document);
    document
}

/// Every place where two documents differ.
fn differences(real: &Value, ours: &Value) -> Vec<String> {
    fn walk(real: Option<&Value>, ours: Option<&Value>, path: &str, found: &mut Vec<String>) {
        match (real, ours) {
            (Some(Value::Object(real)), Some(Value::Object(ours))) => {
                let keys: std::collections::BTreeSet<_> = real.keys().chain(ours.keys()).collect();
                for key in keys {
                    walk(
                        real.get(key),
                        ours.get(key),
                        &format!("{path} {key}"),
                        found,
                    );
                }
            }
            (Some(Value::Array(real)), Some(Value::Array(ours))) => {
                for index in 0..real.len().max(ours.len()) {
                    let path = format!("{path} {index}");
                    walk(real.get(index), ours.get(index), &path, found);
                }
            }
            _ if real == ours => {}
            _ => found.push(format!("{path}: real {real:?}, ours {ours:?}")),
        }
    }
    let mut found = Vec::new();
    walk(Some(real), Some(ours), "", &mut found);
    found
}

/// The document at `/openapi/v3/<key>`; `None` if there is none.
fn v3_document(kinds: &[&fairgate_objects::kind::Kind], key: &str, version: &str) -> Option<Value> {
    let documents = v3::documents(kinds, version);
    let found = documents.into_iter().find(|document| document.key == key);
    found.map(|document| serde_json::from_str(&document.json).unwrap())
}

#[test]
fn the_document_of_flow_control_is_that_of_the_real_server() {
    let real = comparable(golden(include_str!("goldens/v3_flowcontrol_v1.json")));
    let ours = v3_document(&KINDS, &format!("apis/{GROUP}/v1"), "1.36").unwrap();
    assert_eq!(differences(&real, &comparable(ours)), [""; 0]);
}

#[test]
fn the_documents_above_group_versions_are_those_of_the_real_server() {
    let real = golden(include_str!("goldens/v3_overviews.json"));
    for (key, real) in real.as_object().unwrap() {
        let ours = v3_document(&KINDS, key, "1.36").unwrap();
        assert_eq!(differences(real, &comparable(ours)), [""; 0], "{key}");
    }
}

#[test]
fn namespaced_and_create_only_kinds_have_the_paths_of_the_real_server() {
    let real = golden(include_str!("goldens/v3_paths_of_others.json"));
    for (key, real) in real.as_object().unwrap() {
        let ours = v3_document(&golden_kinds(), key, "1.36").unwrap();
        let ours = comparable(ours["paths"].clone());
        assert_eq!(differences(real, &ours), [""; 0], "{key}");
    }
}

#[test]
fn the_document_of_v2_is_that_of_the_real_server() {
    let real = comparable(golden(include_str!("goldens/v2.json")));
    let mut ours = comparable(v2::document(&KINDS, "1.36"));
    // The golden leaves out a version that the real server no longer serves, and has the paths of one
    // kind.
    for part in ["paths", "definitions"] {
        let part = ours[part].as_object_mut().unwrap();
        part.retain(|key, _| !key.contains("v1beta3") && real_has_kind_of(key));
    }
    assert_eq!(differences(&real, &ours), [""; 0]);
}

fn real_has_kind_of(key: &str) -> bool {
    let of_level = ["prioritylevel", "PriorityLevel", "LimitResponse", "Queuing"];
    key.ends_with("PriorityLevelConfigurationReference")
        || !of_level.iter().any(|word| key.contains(word))
}

#[test]
fn versions_differ_in_their_names_and_in_one_default() {
    let document = |version| v3_document(&KINDS, &format!("apis/{GROUP}/{version}"), "").unwrap();
    let older = document("v1beta3").to_string();
    let older = older
        .replace("FlowcontrolApiserverV1beta3", "FlowcontrolApiserverV1")
        .replace("v1beta3", "v1");
    assert_eq!(
        differences(&document("v1"), &golden(&older)),
        [
            " components schemas io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration \
          properties nominalConcurrencyShares default: real None, ours Some(Number(0))"
        ]
    );
}

#[test]
fn documents_contain_exactly_the_schemas_they_refer_to() {
    let mut documents: Vec<Value> = v3::documents(&KINDS, "")
        .iter()
        .map(|document| golden(&document.json))
        .collect();
    documents.push(v2::document(&golden_kinds(), ""));
    for document in documents {
        let mut names = std::collections::BTreeSet::new();
        super::definitions::references(&document, &mut names);
        let schemas = document["components"]["schemas"].as_object();
        let schemas = schemas.or(document["definitions"].as_object()).unwrap();
        assert!(!schemas.is_empty());
        assert!(names.iter().eq(schemas.keys()), "{names:?}");
    }
}

#[test]
fn the_fields_of_a_patch_that_kubectl_looks_for_are_documented() {
    let document = v3_document(&KINDS, &format!("apis/{GROUP}/v1beta3"), "").unwrap();
    let path = format!("/apis/{GROUP}/v1beta3/flowschemas/{{name}}");
    let patch = &document["paths"][path]["patch"];
    let mut parameters = patch["parameters"].as_array().unwrap().iter();
    assert!(parameters.any(|it| it["name"] == "fieldValidation" && it["in"] == "query"));
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({ "group": GROUP, "version": "v1beta3", "kind": "FlowSchema" })
    );
    let types = patch["requestBody"]["content"].as_object().unwrap();
    assert!(types.contains_key("application/strategic-merge-patch+json"));
}

#[test]
fn the_index_names_each_document_by_its_hash() {
    let documents = v3::documents(&KINDS, "");
    let keys: Vec<&str> = documents.iter().map(|it| it.key.as_str()).collect();
    let [group, v1, v1beta3] =
        ["", "/v1", "/v1beta3"].map(|version| format!("apis/{GROUP}{version}"));
    assert_eq!(keys, ["api", "apis", &group, &v1, &v1beta3, "version"]);

    let index = v3::index(&documents);
    for document in &documents {
        let hash = discovery::hash(&document.json);
        assert_eq!(
            index["paths"][&document.key]["serverRelativeURL"],
            format!("/openapi/v3/{}?hash={hash}", document.key)
        );
    }
    assert_eq!(v3_document(&KINDS, "apis/nope/v1", ""), None);
}

#[test]
fn protobuf_is_what_gnostic_makes_of_the_same_document() {
    let document = golden(include_str!("goldens/v2_of_all_shapes.json"));
    let real: &[u8] = include_bytes!("goldens/v2_of_all_shapes.pb");
    assert_eq!(v2_proto::encode(&document), real);
}

#[test]
fn protobuf_of_v3_is_what_gnostic_makes_of_the_same_document() {
    let document = golden(include_str!("goldens/v3_of_all_shapes.json"));
    let real: &[u8] = include_bytes!("goldens/v3_of_all_shapes.pb");
    assert_eq!(v3_proto::encode(&document), real);
}

#[test]
fn protobuf_leaves_out_fields_of_the_wrong_type() {
    let odd = json!({
        "swagger": 2, "info": [], "schemes": "https", "paths": { "/": 1 }, "definitions": null,
        "parameters": { "p": { "in": "header" } }, "unknown": true,
        "securityDefinitions": { "s": { "type": "oauth2" } },
    });
    // Three empty messages: paths, parameters and security definitions.
    assert_eq!(v2_proto::encode(&odd), [0x42, 0, 0x52, 0, 0x6a, 0]);
    assert_eq!(v2_proto::encode(&json!([1])), [0; 0]);
}

#[test]
fn protobuf_of_a_deep_document_is_bounded() {
    let nested = |depth| {
        let schema = (0..depth).fold(json!({}), |inner, _| json!({ "items": inner }));
        v2_proto::encode(&json!({ "definitions": { "A": schema } }))
    };
    assert!(nested(100).len() > nested(50).len());
    assert_eq!(nested(1000).len(), nested(500).len());
}

#[test]
fn hosted_versions_are_merged_into_the_index() {
    let upstream = json!({ "paths": {
        "api": "a", "apis": "b", "apis/apps": "c",
        format!("apis/{GROUP}"): "d", format!("apis/{GROUP}/v1beta2"): "e",
        format!("apis/{GROUP}/v1"): { "serverRelativeURL": "/openapi/v3/x?hash=THEIRS" },
    } });
    let documents = v3::documents(&KINDS, "");
    let ours = v3::index(&documents);
    let merged = merge_v3_index(&upstream, &ours);
    let key = |version: &str| format!("apis/{GROUP}{version}");
    let v1 = documents.iter().find(|document| document.key == key("/v1"));
    let hash = merged_hash("THEIRS", &v1.unwrap().hash);
    assert_eq!(
        merged,
        json!({ "paths": {
            "api": "a", "apis": "b", "apis/apps": "c",
            key(""): "d", key("/v1beta2"): "e",
            key("/v1"): { "serverRelativeURL": format!("/openapi/v3/{}?hash={hash}", key("/v1")) },
            key("/v1beta3"): ours["paths"][key("/v1beta3")],
        } })
    );
}

#[test]
fn hosted_resources_replace_those_of_the_upstream_in_v2() {
    let reference = |name: &str| json!({ "$ref": format!("#/definitions/{name}") });
    let old_list = "io.k8s.api.flowcontrol.v1beta2.FlowSchemaList";
    let old = "io.k8s.api.flowcontrol.v1beta2.FlowSchema";
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let kept = "io.k8s.api.flowcontrol.v1beta2.Subject";
    let upstream = json!({
        "host": "upstream",
        "paths": {
            "/apis/": 1,
            format!("/apis/{GROUP}/v1beta2/flowschemas"): reference(old_list),
            format!("/apis/{GROUP}/v1/others"): "other",
            "/apis/apps/v1/deployments": reference("io.k8s.api.apps.v1.Deployment"),
        },
        "definitions": {
            old_list: { "items": reference(old) },
            old: {},
            kept: {},
            meta: "theirs",
            "io.k8s.api.apps.v1.Deployment": { "items": reference(kept) },
            "io.k8s.api.apps.v1.Unused": {},
        },
    });
    let ours = v2::document(&KINDS, "");
    let merged = merge_v2(&upstream, &ours);

    assert_eq!(merged["host"], "upstream");
    assert_eq!(merged["paths"]["/apis/"], 1);
    assert_eq!(merged["paths"][format!("/apis/{GROUP}/v1/others")], "other");
    let paths = merged["paths"].as_object().unwrap();
    assert!(!paths.contains_key(&format!("/apis/{GROUP}/v1beta2/flowschemas")));
    let path = format!("/apis/{GROUP}/v1/flowschemas");
    assert_eq!(paths[&path], ours["paths"][&path]);
    assert!(!paths.contains_key("/api/"));

    let definitions = merged["definitions"].as_object().unwrap();
    assert!(!definitions.contains_key(old_list) && !definitions.contains_key(old));
    assert!(definitions.contains_key(kept));
    assert!(definitions.contains_key("io.k8s.api.apps.v1.Unused"));
    assert_eq!(definitions[meta], "theirs");
    let name = "io.k8s.api.flowcontrol.v1.FlowSchema";
    assert_eq!(definitions[name], ours["definitions"][name]);
}

#[test]
fn an_upstream_document_of_another_shape_counts_as_empty() {
    let index = v3::index(&v3::documents(&KINDS, ""));
    let document = v2::document(&KINDS, "");
    for upstream in [json!(null), json!([]), json!({}), json!({ "paths": 1 })] {
        assert_eq!(merge_v3_index(&upstream, &index), index);
        let v3: Value = serde_json::from_str(&v3::documents(&KINDS, "")[3].json).unwrap();
        assert_eq!(merge_v3(&upstream, &v3), v3);
        assert_eq!(merge_v2(&upstream, &document), document);
    }
    let merged = merge_v2(&json!({ "paths": {} }), &document);
    assert_eq!(merged["definitions"], document["definitions"]);
}
