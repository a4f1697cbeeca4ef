//! Lists in pages, and at past revisions.

use std::time::Duration;

use fairgate_apihttp::continue_token::ContinueToken;
use fairgate_base::clock::Clock;
use serde_json::{Value, json};

use super::{Home, LEVELS, SCHEMAS, Server, api::Api, level, name, schema, version};
use crate::random::{self, Below as _};

/// Creates levels whose names sort between those of the built-in levels.
async fn fill(api: &Api, count: usize) {
    for number in 0..count {
        let object = level(&format!("p-{number:02}"), 1);
        api.post(LEVELS, &object).await.object();
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().unwrap()
}

fn names(list: &Value) -> Vec<String> {
    items(list)
        .iter()
        .map(|item| name(item).to_owned())
        .collect()
}

fn token(list: &Value) -> Option<&str> {
    list["metadata"]["continue"].as_str()
}

/// Drops all history, as the store does in time.
async fn forget(server: &Server) {
    let later = Clock::system().now().plus(Duration::from_secs(3600));
    server.store().maintain(later).await.unwrap();
    assert_eq!(server.store().floor(), server.store().cached_revision());
}

#[tokio::test]
async fn all_pages_show_one_revision_whatever_is_written_meanwhile() {
    let mut random = random::seeded();
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    fill(&api, 20).await;
    let whole = api.get(LEVELS).await.object();
    assert_eq!(token(&whole), None);

    for limit in [3, 7, 28, 29] {
        let whole = api.get(LEVELS).await.object();
        let mut pages = Vec::new();
        let mut target = format!("{LEVELS}?limit={limit}");
        loop {
            let page = api.get(&target).await.object();
            assert_eq!(version(&page), version(&whole), "{target}");
            pages.extend_from_slice(items(&page));
            let remain = items(&whole).len() - pages.len();
            let response = page["metadata"]["remainingItemCount"].as_u64();
            assert_eq!(response.unwrap_or(0), remain as u64, "{target}");
            let Some(token) = token(&page) else {
                assert_eq!(remain, 0);
                break;
            };
            assert_eq!(items(&page).len(), limit);
            target = format!("{LEVELS}?limit={limit}&continue={token}");
            // These writes change objects before, at and after the end of the page.
            let name = format!("p-{:02}", random.below(20));
            let patch =
                json!({"spec": {"limited": {"nominalConcurrencyShares": random.below(99)}}});
            api.merge(&format!("{LEVELS}/{name}"), &patch)
                .await
                .object();
            let name = format!("p-{:02}x", random.below(20));
            api.post(LEVELS, &level(&name, 1)).await;
        }
        assert_eq!(pages, items(&whole), "by {limit}");
    }
}

#[tokio::test]
async fn a_page_of_selected_objects_is_filled_and_has_no_remaining_item_count() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    fill(&api, 12).await;
    for number in [1, 4, 11] {
        let patch = json!({"metadata": {"labels": {"team": "red"}}});
        let target = format!("{LEVELS}/p-{number:02}");
        api.merge(&target, &patch).await.object();
    }
    let target = format!("{LEVELS}?labelSelector=team%3Dred&limit=2");
    let mut found = Vec::new();
    let mut next = target.clone();
    for _ in 0..20 {
        let page = api.get(&next).await.object();
        assert!(page["metadata"].get("remainingItemCount").is_none());
        assert!(items(&page).len() <= 2);
        found.extend(names(&page));
        match token(&page) {
            None => break,
            Some(token) => next = format!("{target}&continue={token}"),
        }
    }
    assert_eq!(found, ["p-01", "p-04", "p-11"]);
}

#[tokio::test]
async fn pages_of_rare_objects_have_each_object_once() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for number in 0..60 {
        let mut object = level(&format!("p-{number:02}"), 1);
        if number % 7 == 3 {
            object["metadata"]["labels"] = json!({"rare": "yes"});
        }
        api.post(LEVELS, &object).await.object();
    }
    let selector = "labelSelector=rare%3Dyes";
    let whole = api.get(&format!("{LEVELS}?{selector}")).await.object();
    assert_eq!(items(&whole).len(), 9);
    for limit in 1..=10 {
        let first = format!("{LEVELS}?{selector}&limit={limit}");
        let mut page = api.get(&first).await.object();
        let mut found = names(&page);
        while let Some(token) = token(&page) {
            assert_eq!(items(&page).len(), limit, "every page but the last is full");
            page = api.get(&format!("{first}&continue={token}")).await.object();
            found.extend(names(&page));
        }
        assert_eq!(found, names(&whole), "limit {limit}");
    }
}

#[tokio::test]
async fn a_list_has_the_requested_revision() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let old = api.get(LEVELS).await.object();
    let created = api.post(LEVELS, &level("a-new", 1)).await.object();
    let get = async |query: &str| api.get(&format!("{LEVELS}?{query}")).await;
    let before = version(&old);
    let after = version(&created);

    let exact = format!("resourceVersion={before}&resourceVersionMatch=Exact");
    assert_eq!(get(&exact).await.object(), old);
    // With a limit, a revision without `resourceVersionMatch` is exact.
    let legacy = get(&format!("resourceVersion={before}&limit=2"))
        .await
        .object();
    assert_eq!(version(&legacy), before);
    assert_eq!(items(&legacy), &items(&old)[..2]);

    for query in [
        format!("resourceVersion={before}"),
        format!("resourceVersion={before}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={after}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={before}&resourceVersionMatch=NotOlderThan&limit=1"),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(),
        "resourceVersion=0".to_owned(),
    ] {
        let list = get(&query).await.object();
        assert!(version(&list) >= after, "{query}");
        assert!(names(&list).contains(&"a-new".to_owned()), "{query}");
    }

    // A continue token has its own revision, and no other may be requested with it.
    let page = get("limit=1").await.object();
    let next = format!("limit=1&continue={}", token(&page).unwrap());
    assert_eq!(
        version(&get(&format!("{next}&resourceVersion=0")).await.object()),
        version(&page)
    );
    let response = get(&format!("{next}&resourceVersion={after}")).await;
    let message = response.refused(400, "BadRequest");
    assert_eq!(
        message,
        "specifying resource version is not allowed when using continue"
    );
}

#[tokio::test]
async fn invalid_lists_are_refused_as_in_kube_apiserver() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let get = async |query: &str| api.get(&format!("{LEVELS}?{query}")).await;
    let invalid = [
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            "\"exact\" is forbidden",
        ),
        (
            "resourceVersionMatch=Exact",
            "forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=1&resourceVersionMatch=Near",
            "Unsupported value: \"Near\"",
        ),
        (
            "resourceVersion=1&resourceVersionMatch=Exact&continue=x",
            "forbidden when continue is provided",
        ),
    ];
    for (query, text) in invalid {
        let message = get(query).await.refused(422, "Invalid");
        assert!(message.contains(text), "{query}: {message}");
    }
    let bad = [
        ("resourceVersion=abc", "invalid resource version: "),
        (
            "limit=abc",
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        ),
        (
            "continue=abc",
            "invalid continue token: continue key is not valid",
        ),
    ];
    for (query, text) in bad {
        let message = get(query).await.refused(400, "BadRequest");
        assert!(message.starts_with(text), "{query}: {message}");
    }
    // The first and the last request wait a while for their revision.
    let item = format!("{LEVELS}/exempt?resourceVersion=1000000");
    let answers = tokio::join!(
        get("resourceVersion=1000000"),
        get("resourceVersion=1000000&resourceVersionMatch=Exact"),
        api.get(&item),
    );
    for response in [answers.0, answers.1, answers.2] {
        let message = response.refused(504, "Timeout");
        assert!(message.starts_with("Timeout: Too large resource version: 1000000, current: "));
        let cause = &response.json()["details"]["causes"][0];
        assert_eq!(cause["reason"], "ResourceVersionTooLarge", "{response:?}");
    }
}

#[tokio::test]
async fn a_list_whose_history_was_dropped_expires_and_may_continue_at_the_latest_revision() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    fill(&api, 6).await;
    let old = version(&api.get(LEVELS).await.object());
    let page = api.get(&format!("{LEVELS}?limit=4")).await.object();
    let rest = format!("{LEVELS}?limit=4&continue={}", token(&page).unwrap());
    api.delete(&format!("{LEVELS}/p-02")).await.object();
    api.post(LEVELS, &level("p-99", 1)).await.object();
    forget(&server).await;

    let response = api.get(&rest).await;
    let message = response.refused(410, "Expired");
    assert!(message.contains("inconsistent"), "{message}");
    let status = response.json();
    let fresh = ContinueToken::decode(token(&status).unwrap()).unwrap();
    assert_eq!(fresh.revision, None);
    let mut seen = names(&page);
    let mut next = token(&status).unwrap().to_owned();
    loop {
        let page = api
            .get(&format!("{LEVELS}?limit=4&continue={next}"))
            .await
            .object();
        seen.extend(names(&page));
        match token(&page) {
            None => break,
            Some(token) => token.clone_into(&mut next),
        }
    }
    assert_eq!(seen, names(&api.get(LEVELS).await.object()));

    let exact = format!("{LEVELS}?resourceVersion={old}&resourceVersionMatch=Exact");
    let message = api.get(&exact).await.refused(410, "Expired");
    assert_eq!(
        message,
        "The resourceVersion for the provided list is too old."
    );

    let mut watch = api
        .watch(&format!("{LEVELS}?watch=true&resourceVersion={old}"))
        .await;
    let (ty, status) = watch.event().await;
    assert_eq!((ty.as_str(), &status["code"]), ("ERROR", &json!(410)));
    assert_eq!(status["reason"], "Expired");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("too old resource version"), "{message}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn deleting_a_collection_deletes_only_the_selected_objects() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for number in 0..6 {
        let mut object = schema(&format!("c-{number}"), "exempt", 100, "x");
        object["metadata"]["labels"] = json!({"odd": (number % 2).to_string()});
        api.post(SCHEMAS, &object).await.object();
    }
    let before = api.get(SCHEMAS).await.object();
    let from = version(&before);
    let target = format!("{SCHEMAS}?labelSelector=odd%3D1");
    let dry = api.delete(&format!("{target}&dryRun=All")).await.object();
    assert_eq!(names(&dry), ["c-1", "c-3", "c-5"]);
    assert_eq!(names(&api.get(SCHEMAS).await.object()), names(&before));

    let gone = api.delete(&target).await.object();

    assert_eq!(gone["kind"], "FlowSchemaList");
    assert_eq!(names(&gone), ["c-1", "c-3", "c-5"]);
    let rest = names(&api.get(SCHEMAS).await.object());
    let expected: Vec<String> = names(&before)
        .into_iter()
        .filter(|name| !["c-1", "c-3", "c-5"].contains(&name.as_str()))
        .collect();
    assert_eq!(rest, expected);
    // Each deletion has its own revision and event.
    let target = format!("{SCHEMAS}?watch=true&resourceVersion={from}&labelSelector=odd%3D1");
    let mut watch = api.watch(&target).await;
    let mut deleted = Vec::new();
    while deleted.len() < 3 {
        let (ty, object) = watch.event().await;
        if ty == "DELETED" {
            deleted.push((version(&object), name(&object).to_owned()));
        }
    }
    deleted.dedup_by_key(|(revision, _)| *revision);
    assert_eq!(deleted.len(), 3);
}
