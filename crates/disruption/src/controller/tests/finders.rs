//! The lookup of scales: where the scale of each kind of owner is found.

use serde_json::json;

use super::{
    super::scale::{
        ControllerScale, DiscoveredResource, ScaleError, ScaleLookup, ScaleQuestion, ScaleResponse,
        ScaledKind, ScaledObject,
    },
    ControllerRef,
};

fn reference(api_version: &str, kind: &str) -> ControllerRef {
    let owner = json!({
        "apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": true,
    });
    let object = json!({"metadata": {"ownerReferences": [owner]}});
    ControllerRef::from_value(&object).unwrap().unwrap()
}

fn object(replicas: i32, controller: Option<ControllerRef>) -> ScaledObject {
    ScaledObject {
        uid: "u".into(),
        replicas,
        controller,
    }
}

/// The scale that the built-in finders find if every built-in object exists. `above` is the controller of the
/// `ReplicaSet`.
fn built_in(owner: ControllerRef, above: Option<&ControllerRef>) -> Option<i32> {
    let mut lookup = ScaleLookup::new(owner);
    loop {
        match lookup.question() {
            Ok(ScaleQuestion::Object(kind, _)) => {
                let found = match kind {
                    ScaledKind::ReplicaSet if above.is_some() => object(5, above.cloned()),
                    ScaledKind::ReplicaSet | ScaledKind::Deployment => object(10, None),
                    ScaledKind::ReplicationController => object(12, None),
                    ScaledKind::StatefulSet => object(14, None),
                };
                lookup.object(Some(&found));
            }
            Ok(_) => return None,
            Err(result) => return result.clone().unwrap().map(|scale| scale.replicas),
        }
    }
}

#[test]
fn c17_owners_are_found_by_kind_and_group() {
    for (api_version, kind, expected) in [
        ("apps/v1", "ReplicaSet", Some(10)),
        ("apps/v1beta1", "ReplicaSet", Some(10)),
        ("extensions/v1beta1", "ReplicaSet", Some(10)),
        ("invalid/v1", "ReplicaSet", None),
        ("v1", "ReplicationController", Some(12)),
        ("apps/v1", "ReplicationController", None),
        ("apps/v1", "StatefulSet", Some(14)),
        ("extensions/v1beta1", "StatefulSet", None),
        ("apps/v1", "DaemonSet", None),
    ] {
        let found = built_in(reference(api_version, kind), None);
        assert_eq!(found, expected, "{api_version} {kind}");
    }
    // A ReplicaSet is not looked up as a StatefulSet.
    let lookup = ScaleLookup::new(reference("apps/v1", "ReplicaSet"));
    let question = ScaleQuestion::Object(ScaledKind::ReplicaSet, "o".into());
    assert_eq!(lookup.question(), Ok(question));
}

#[test]
fn c18_a_replica_set_counts_as_its_deployment() {
    for (set, set_kind, above, above_kind, expected) in [
        (
            "apps/v1",
            "ReplicaSet",
            "extensions/v1beta1",
            "Deployment",
            Some(10),
        ),
        ("invalid/v1", "ReplicaSet", "apps/v1", "Deployment", None),
        ("apps/v1", "Invalid", "apps/v1", "Deployment", None),
        ("apps/v1", "ReplicaSet", "invalid/v1", "Deployment", None),
        // Its own scale counts, because its owner is not a Deployment.
        ("apps/v1", "ReplicaSet", "apps/v1", "Invalid", Some(5)),
    ] {
        let above = reference(above, above_kind);
        let found = built_in(reference(set, set_kind), Some(&above));
        assert_eq!(found, expected, "{set} {set_kind} of {above}");
    }
}

/// A lookup whose GET of the scale has given 404.
fn without_scale() -> ScaleLookup {
    let mut lookup = ScaleLookup::new(reference("example.com/v1", "Widget"));
    assert!(matches!(lookup.question(), Ok(ScaleQuestion::Scale(_))));
    let resource = "widgets.example.com".to_owned();
    lookup.scale(ScaleResponse::NotFound { resource });
    let question = ScaleQuestion::Discovery("example.com/v1".into());
    assert_eq!(lookup.question(), Ok(question));
    lookup
}

#[test]
fn c10_discovery_distinguishes_an_unknown_kind_of_owner_from_one_without_scale() {
    let listed = |group: &str, kind: &str| DiscoveredResource {
        name: "widgets/scale".to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
    };
    let mut gone = without_scale();
    gone.discovery(Ok(&[listed("autoscaling", "Scale")]));
    assert_eq!(gone.question(), Err(&Ok(None)));

    let error = ScaleError::NoScale("widgets.example.com".to_owned());
    let text = "widgets.example.com does not implement the scale subresource";
    assert_eq!(error.to_string(), text);
    for resources in [vec![listed("example.com", "WidgetScale")], vec![]] {
        let mut none = without_scale();
        none.discovery(Ok(&resources));
        assert_eq!(none.question(), Err(&Err(error.clone())));
    }
    let mut failed = without_scale();
    failed.discovery(Err("timeout".to_owned()));
    let error = ScaleError::Failed("timeout".to_owned());
    assert_eq!(failed.question(), Err(&Err(error)));
}

#[test]
fn answers_are_read_from_objects() {
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "o", "uid": "u", "controller": true,
    }]);
    let mut set = json!({
        "metadata": {"uid": "r", "ownerReferences": owners},
        "spec": {"replicas": 3},
    });
    let read = ScaledObject::from_value(&set).unwrap();
    assert_eq!((&*read.uid, read.replicas), ("r", 3));
    assert_eq!(read.controller, Some(reference("apps/v1", "Deployment")));
    set["spec"] = json!({});
    assert_eq!(ScaledObject::from_value(&set).unwrap().replicas, 1);
    set["spec"] = json!({"replicas": "3"});
    let error = ScaledObject::from_value(&set).unwrap_err();
    assert_eq!(error.field, "spec.replicas");

    let scale = json!({"kind": "Scale", "metadata": {"uid": "u"}, "spec": {}});
    assert_eq!(ControllerScale::from_value(&scale).unwrap().replicas, 0);

    let list = json!({"resources": [
        {"name": "deployments", "kind": "Deployment"},
        {"name": "deployments/scale", "group": "autoscaling", "version": "v1", "kind": "Scale"},
    ]});
    let listed = DiscoveredResource::from_list(&list).unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1].group, "autoscaling");
}

#[test]
fn an_object_of_another_uid_is_not_the_owner() {
    let other = ScaledObject {
        uid: "other".into(),
        ..object(3, None)
    };
    for found in [None, Some(&other)] {
        let mut lookup = ScaleLookup::new(reference("apps/v1", "StatefulSet"));
        lookup.object(found);
        assert!(matches!(lookup.question(), Ok(ScaleQuestion::Scale(_))));
        let scale = ControllerScale {
            uid: "other".into(),
            replicas: 3,
        };
        lookup.scale(ScaleResponse::Found(scale));
        assert_eq!(lookup.question(), Err(&Ok(None)));
    }
}
