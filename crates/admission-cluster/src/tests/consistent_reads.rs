//! Namespaces and params that are read for each request, whatever the watches have delivered.

use fairgate_admission::LookupLack;

use super::*;

fn typed(mut object: Value, kind: &str) -> Value {
    object["apiVersion"] = json!("v1");
    object["kind"] = json!(kind);
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_for_a_request_is_as_it_is_now_also_if_the_watches_are_silent() {
    let (api, upstream) = usual();
    api.put(NAMESPACES, namespace("a", "red"));
    api.put(CONFIG_MAPS, named("a", "p"));
    let state = start(&upstream, Clock::manual(Time::ZERO), true);
    state.follow(&needs());
    state.namespaces_listed().await;
    state.params_listed().await;
    // Nothing is taken from what is known.
    assert!(state.namespace("a").is_none());
    assert!(state.param(&config_map(), "a", "p").is_none());
    assert!(state.are_params_known(&config_map()) && state.lists_params(&config_map()));
    for team in ["red", "blue", "green"] {
        api.document(
            "/api/v1/namespaces/a",
            typed(namespace("a", team), "Namespace"),
        );
        let read = state.read_namespace("u", "a").await.unwrap();
        assert_eq!(read.text_at(&["metadata", "labels", "team"]), team);
    }
    let maps = "/api/v1/namespaces/a/configmaps";
    for names in [vec!["p"], vec!["p", "q"], vec![]] {
        let items: Vec<Value> = names.iter().map(|name| named("a", name)).collect();
        api.document(maps, json!({"kind": "ConfigMapList", "items": items}));
        let listed = state.list_params("u", &config_map(), "a").await.unwrap();
        let found: Vec<_> = listed
            .iter()
            .map(|one| (one.text_at(&["kind"]), one.text_at(&["metadata", "name"])))
            .collect();
        let expected: Vec<_> = names.iter().map(|name| ("ConfigMap", *name)).collect();
        assert_eq!(found, expected);
    }
    // Absence is not remembered.
    let path = format!("{maps}/new");
    let absent = state.read_param("u", &config_map(), "a", "new").await;
    assert_eq!(absent, Err(InputFailure::NotFound));
    api.document(&path, typed(named("a", "new"), "ConfigMap"));
    assert!(
        state
            .read_param("u", &config_map(), "a", "new")
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_lacking_and_no_error_of_the_policy() {
    let (api, upstream) = usual();
    let state = start(&upstream, Clock::manual(Time::ZERO), true);
    state.follow(&needs());
    state.params_listed().await;
    let is_lacking =
        |failure: InputFailure| matches!(failure, InputFailure::Lacking(LookupLack::Server(_)));
    let of = "/api/v1/namespaces/a";
    api.forbid(of, true);
    assert!(is_lacking(
        state.read_namespace("u", "a").await.unwrap_err()
    ));
    // Another kind than the one that was asked for.
    api.document(of, json!({"kind": "Status"}));
    assert!(is_lacking(
        state.read_namespace("u", "a").await.unwrap_err()
    ));
    let param = format!("{of}/configmaps/p");
    api.forbid(&param, true);
    let read = state.read_param("u", &config_map(), "a", "p").await;
    assert!(is_lacking(read.unwrap_err()));
    let maps = format!("{of}/configmaps");
    assert!(
        state.list_params("u", &config_map(), "a").await.is_err(),
        "there is none"
    );
    api.forbid(&maps, true);
    assert!(state.list_params("u", &config_map(), "a").await.is_err());
    let unknown = PolicyParamKind {
        api_version: "x.io/v1".to_owned(),
        kind: "Limit".to_owned(),
    };
    assert!(state.list_params("u", &unknown, "").await.is_err());
    assert!(is_lacking(
        state.read_param("u", &unknown, "", "p").await.unwrap_err()
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_responses_are_decoded_by_the_threads_that_evaluate() {
    let (api, upstream) = usual();
    let (large, small) = ("/api/v1/namespaces/a", "/api/v1/namespaces/b");
    let mut object = typed(namespace("a", "red"), "Namespace");
    object["metadata"]["annotations"] = json!({"long": "x".repeat(200 << 10)});
    api.document(large, object);
    api.document(small, typed(namespace("b", "red"), "Namespace"));
    let workers = Arc::new(WorkerPool::new(1));
    let clock = Clock::manual(Time::ZERO);
    let state = start_with(&upstream, clock, true, Arc::clone(&workers));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let busy = Arc::clone(&workers);
    let busy = tokio::spawn(async move { busy.run("other", 0, move || released.recv()).await });
    let reading = tokio::spawn({
        let state = Arc::clone(&state);
        async move { state.read_namespace("u", "a").await }
    });
    // Meanwhile short ones are read.
    for _ in 0..20 {
        assert!(state.read_namespace("u", "b").await.is_ok());
    }
    assert!(!reading.is_finished(), "the thread is busy");
    release.send(()).unwrap();
    busy.await.unwrap().unwrap().unwrap();
    let read = reading.await.unwrap().unwrap();
    assert_eq!(read.text_at(&["metadata", "name"]), "a");
}
