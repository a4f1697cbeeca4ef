//! Kinds of params that come, go, and are shared by policies.

use super::*;

const LIMITS: &str = "/apis/x.io/v1/limits";

fn limit_kind() -> PolicyParamKind {
    PolicyParamKind {
        api_version: "x.io/v1".to_owned(),
        kind: "Limit".to_owned(),
    }
}

fn limit(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Creates or deletes the definition of the kind, with its objects and watches.
fn serve_limits(api: &StandIn, is_served: bool) {
    let resources = json!([{"resource": "limits", "scope": "Cluster",
        "responseKind": {"group": "x.io", "version": "v1", "kind": "Limit"}}]);
    let versions = json!([{"version": "v1", "resources": resources}]);
    let group = json!({"metadata": {"name": "x.io"}, "versions": versions});
    let items = if is_served { json!([group]) } else { json!([]) };
    api.document(
        "/apis",
        json!({"kind": "APIGroupDiscoveryList", "items": items}),
    );
    api.with(|state| {
        state.collections.remove(LIMITS);
        if is_served {
            state.collection(LIMITS);
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p24_params_of_a_kind_that_is_deleted_are_not_found() {
    let (api, upstream) = usual();
    serve_limits(&api, true);
    api.put(LIMITS, limit("p"));
    let state = follow(&upstream);
    let kind = limit_kind();
    state.follow(&ClusterNeeds {
        namespaces: false,
        params: BTreeSet::from([kind.clone()]),
    });
    state.params_listed().await;
    assert!(state.param(&kind, "", "p").is_some());

    serve_limits(&api, false);
    until("the kind is gone", || {
        state.resource("x.io", "v1", "limits", "").is_none()
    })
    .await;
    until("the params are gone", || state.params(&kind, "").is_empty()).await;
    // As in a server, bindings say what happens when their params are not found. An error of the policy would not.
    assert_eq!(state.param_scope(&kind), Ok(ParamScope::Cluster));
    assert!(state.are_params_known(&kind));
    let read = state.read_param("u", &kind, "", "p").await;
    assert_eq!(read, Err(InputFailure::NotFound));

    serve_limits(&api, true);
    api.put(LIMITS, limit("q"));
    until("the params are back", || {
        state.param(&kind, "", "q").is_some()
    })
    .await;

    // Without a policy that needs the kind, there is none.
    serve_limits(&api, false);
    until("the kind is gone again", || {
        state.resource("x.io", "v1", "limits", "").is_none()
    })
    .await;
    state.follow(&ClusterNeeds::default());
    assert!(state.param_scope(&kind).is_err() && !state.are_params_known(&kind));
}

fn policy_with_params(name: &str) -> Value {
    let mut policy = policy(name, "params.metadata.name == 'p'");
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    policy
}

fn binding_with_params(name: &str) -> Value {
    let mut binding = binding(name);
    binding["spec"]["paramRef"] =
        json!({"name": "p", "namespace": "a", "parameterNotFoundAction": "Deny"});
    binding
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p25_of_two_policies_that_share_a_kind_of_params_one_may_go() {
    let (api, upstream) = usual();
    api.put(CONFIG_MAPS, named("a", "p"));
    for name in ["one", "two"] {
        api.put(POLICIES, policy_with_params(name));
        api.put(BINDINGS, binding_with_params(name));
    }
    let state = follow(&upstream);
    let feed = UpstreamPolicies::start(&state, true, None);
    let published = Arc::<PublishedPolicies>::default();
    let publisher = PolicyPublisher {
        published: Arc::clone(&published),
        state: Arc::clone(&state),
        fidelity: Fidelity::Completed,
        status: PublishingStatus::new(Clock::manual(Time::ZERO), feed.age()),
        max_staleness: None,
        keep: None,
    };
    let task = tokio::spawn(publisher.run(feed));
    let count = || published.current().map(|policies| policies.set.len());
    until("both are in force", || count() == Some(2)).await;
    let is_found = || state.param(&config_map(), "a", "p").is_some();
    until("the param is known", is_found).await;
    let lists = || {
        let seen = upstream.seen();
        let of_params =
            |target: &str| target.starts_with(CONFIG_MAPS) && !target.contains("watch=true");
        seen.iter().filter(|seen| of_params(&seen.target)).count()
    };
    let before = lists();

    api.delete(POLICIES, policy_with_params("one"));
    until("one is in force", || count() == Some(1)).await;
    assert!(is_found() && state.are_params_known(&config_map()));
    api.delete(CONFIG_MAPS, named("a", "p"));
    until("the watch goes on", || !is_found()).await;
    // The params were followed all the time, not listed again.
    assert_eq!(lists(), before);

    api.delete(POLICIES, policy_with_params("two"));
    until("none is in force", || count() == Some(0)).await;
    until("params are not watched", || {
        api.open_watches(CONFIG_MAPS) == 0
    })
    .await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn params_of_built_in_kinds_are_known_without_discovery() {
    let (api, upstream) = usual();
    for path in ["/api", "/apis"] {
        api.with(|state| state.collection(path).is_forbidden = true);
        api.with(|state| state.documents.remove(path));
    }
    api.put(CONFIG_MAPS, named("n", "p"));
    let state = follow(&upstream);
    state.follow(&needs());
    until("the params are known", || {
        state.are_params_known(&config_map())
    })
    .await;
    assert!(state.param(&config_map(), "n", "p").is_some());
    assert_eq!(state.param_scope(&config_map()), Ok(ParamScope::Namespaced));
    assert!(state.param_scope(&limit_kind()).is_err());
    assert!(!state.are_resources_known());
}
