//! What gateways do about records that they did not expect.

use super::*;
use crate::engine::{FleetEngine as _, StoreOutcome};
use fairgate_fleet::identity::KeyRevision;

#[tokio::test(start_paused = true)]
async fn a_second_process_with_the_same_name_displaces_the_first() {
    let mut fleet = Fleet::new(2);
    fleet.pass(20).await;
    fleet.start("gw-0");
    fleet.pass(20).await;
    assert_eq!(fleet.states()[0], Some(GatewayState::Displaced));
    let displaced = fleet.members[0].status.view();
    assert_eq!(displaced.isolation_reason(), Some("same-name"));
    assert_eq!(fleet.members[0].site.may_use(), 0);
    assert_eq!(fleet.states()[2], Some(GatewayState::Granted));
}

#[tokio::test(start_paused = true)]
async fn a_backup_with_reports_of_earlier_runs_displaces_no_gateway() {
    let mut fleet = Fleet::new(2);
    fleet.pass(20).await;
    let backup = fleet.engine.backup();
    for name in ["gw-0", "gw-1"] {
        let mut old = fleet.members.remove(0);
        *lock(&old.site.wants) = 0;
        old.site.serve();
        old.stop.take().unwrap().send(()).unwrap();
        old.task.await.unwrap();
        fleet.start(name);
        fleet.pass(20).await;
    }
    let before = fleet.pass(1).await;
    fleet.engine.restore(backup);
    let used = fleet.pass(30).await;
    assert_eq!(fleet.states(), [Some(GatewayState::Granted); 2]);
    assert_eq!(used, before);
    // A process that takes the name now does displace it.
    fleet.start("gw-0");
    fleet.pass(20).await;
    assert_eq!(fleet.states()[0], Some(GatewayState::Displaced));
}

#[tokio::test(start_paused = true)]
async fn gateways_that_go_by_other_terms_are_not_divided_among() {
    let mut fleet = Fleet::new(2);
    fleet.pass(20).await;
    fleet.start_by("gw-2", Settings::new(4, FLOOR, Reclaim::Prompt));
    let used = fleet.pass(20).await;
    assert_eq!(
        used,
        [29, 29, FLOOR],
        "grants stay, and it has its floor alone"
    );
    let coordinators = fleet.members.iter().map(|member| member.status.view());
    let problem = coordinators.into_iter().find(|view| view.coordinates);
    let problem = problem.unwrap().problem.unwrap();
    assert!(
        problem.contains("gateway gw-2 has other settings"),
        "{problem}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_coordinator_says_which_gateways_hash_flows_with_different_keys() {
    let fleet = Fleet::new(3);
    let said = || {
        let views = fleet.members.iter().map(|member| member.status.view());
        views.into_iter().find_map(|view| view.hash_keys_differ)
    };
    // One does not have the key of its fleet yet.
    for (marks, expected) in [
        ([None, Some(7), Some(7)], None),
        (
            [Some(7), Some(7), Some(8)],
            Some("gateways gw-0 and gw-2 hash"),
        ),
        ([Some(8), Some(8), Some(8)], None),
    ] {
        for (member, mark) in fleet.members.iter().zip(marks) {
            *lock(&member.site.hash_key_mark) = mark;
        }
        fleet.pass(20).await;
        let said = said();
        assert_eq!(said.is_some(), expected.is_some(), "{marks:?}: {said:?}");
        if let (Some(said), Some(expected)) = (said, expected) {
            assert!(said.starts_with(expected), "{said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_read_a_record_of_another_version_leaves_coordinating_to_others() {
    let fleet = Fleet::new(1);
    fleet.pass(20).await;
    let coordinates = |fleet: &Fleet| fleet.members[0].status.view().coordinates;
    let is_free = async |fleet: &Fleet| {
        let lease = fleet.engine.lease_call(Method::GET, None).await.unwrap();
        lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    };
    assert!(coordinates(&fleet) && !is_free(&fleet).await);
    let newer = FleetKey::Report("newer".to_owned());
    let report = br#"{"version": 2, "shape": "unknown"}"#.to_vec();
    let written = fleet.engine.write(&newer, KeyRevision(0), report).await;
    assert!(matches!(written, Ok(StoreOutcome::Stored(_))));
    let grants = fleet.pass(5).await;
    assert!(!coordinates(&fleet) && is_free(&fleet).await);
    // It tries again, without an end, and keeps its grant all the while.
    assert_eq!(fleet.pass(200).await, grants);
    assert_eq!(fleet.states(), [Some(GatewayState::Granted)]);
    fleet.engine.delete(&newer);
    fleet.pass(90).await;
    assert!(coordinates(&fleet));
}

#[tokio::test(start_paused = true)]
async fn all_gateways_notice_a_deleted_ledger_and_keep_their_grants() {
    let mut fleet = Fleet::new(2);
    fleet.pass(20).await;
    let grants = fleet.pass(1).await;
    fleet.engine.delete(&FleetKey::Ledger);
    assert_eq!(fleet.pass(20).await, grants);
    for member in &fleet.members {
        let view = member.status.view();
        assert!(view.ledger_lost);
        assert_eq!(view.ledger.entries.len(), 2, "the last one is shown");
    }

    // Somebody who never saw that ledger learns of it from the reports.
    fleet.start("gw-2");
    fleet.pass(5).await;
    for died in fleet.members.drain(..2) {
        died.task.abort();
    }
    fleet.pass(30).await;
    let view = fleet.members[0].status.view();
    assert!(view.coordinates && view.ledger_lost);
}
