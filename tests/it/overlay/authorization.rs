//! Requests for hosted objects are authorized by the upstream's `SubjectAccessReview`s.

use http::Method;

use super::{GROUP, REVIEWS, SCHEMAS, Server, client_of, gateway_before, is_of_a_client};

#[tokio::test]
async fn each_decision_is_requested_once_for_each_user() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;
    for _ in 0..3 {
        assert_eq!(alice.get(SCHEMAS, &[]).await.status, 200);
        let refused = alice.create_schema("hers").await;
        assert_eq!(refused.status, 403);
        assert_eq!(
            refused.message(),
            "flowschemas.flowcontrol.apiserver.k8s.io is forbidden: User \"alice\" cannot create \
             resource \"flowschemas\" in API group \"flowcontrol.apiserver.k8s.io\" at the cluster \
             scope: not on a Friday"
        );
    }
    let reviews = server.of(REVIEWS);
    assert_eq!(reviews.len(), 2, "{reviews:?}");
    assert!(
        !is_of_a_client(&reviews[0].headers),
        "in the gateway's name"
    );
    // Each user has decisions of their own.
    assert_eq!(
        client_of(&gateway, "carol")
            .await
            .get(SCHEMAS, &[])
            .await
            .status,
        200
    );
    assert_eq!(server.of(REVIEWS).len(), 3);
    client_of(&gateway, "root").await.get(SCHEMAS, &[]).await;
    assert_eq!(server.of(REVIEWS).len(), 3);
}

#[tokio::test]
async fn an_apply_that_would_create_an_object_requires_the_right_to_create() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut carol = client_of(&gateway, "carol").await;
    let refused = carol.apply_schema("new").await;
    assert_eq!(refused.status, 403);
    let message = refused.message();
    assert!(message.contains("cannot create resource"), "{message}");
    assert!(message.ends_with(": not on a Friday"), "{message}");
    client_of(&gateway, "root").await.create_schema("new").await;
    assert_eq!(carol.apply_schema("new").await.status, 200);
}

#[tokio::test]
async fn a_user_who_may_only_patch_never_creates_an_object() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let (mut carol, mut root) = (
        client_of(&gateway, "carol").await,
        client_of(&gateway, "root").await,
    );
    let create_and_delete = async {
        for _ in 0..150 {
            root.create_schema("fleeting").await;
            let target = format!("{SCHEMAS}/fleeting");
            root.send(Method::DELETE, &target, &[], String::new()).await;
        }
    };
    let applying = async {
        loop {
            let status = carol.apply_schema("fleeting").await.status;
            assert!([200, 403, 409].contains(&status), "{status}");
        }
    };
    tokio::select! {
        () = create_and_delete => {}
        () = applying => {}
    }
}

#[tokio::test]
async fn without_the_upstream_cached_decisions_hold() {
    let mut server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;
    let mut bob = client_of(&gateway, "bob").await;
    assert_eq!(alice.get(SCHEMAS, &[]).await.status, 200);
    let undecided = bob.get(SCHEMAS, &[]).await;
    assert_eq!(undecided.status, 500);
    assert_eq!(
        undecided.text(),
        format!(
            "Internal Server Error: \"{SCHEMAS}\": SubjectAccessReview: the upstream answered 503: Service Unavailable\n"
        )
    );

    server.upstream = None;
    assert_eq!(alice.get(SCHEMAS, &[]).await.status, 200);
    let other = SCHEMAS.replace("flowschemas", "prioritylevelconfigurations");
    let undecided = alice.get(&other, &[]).await;
    assert_eq!(undecided.status, 500);
    let text = undecided.text();
    assert!(text.starts_with(&format!("Internal Server Error: \"{other}\": ")));
    for target in ["/apis", GROUP, "/openapi/v2", "/version"] {
        let status = alice.get(target, &[]).await.status;
        assert!([502, 503].contains(&status), "{target}: {status}");
    }
    let mut root = client_of(&gateway, "root").await;
    assert_eq!(root.create_schema("in-the-dark").await.status, 201);
    assert_eq!(root.get(SCHEMAS, &[]).await.status, 200);
}
