//! The debug dumps: columns, details, and who can see them.

use super::*;

#[test]
fn the_dumps_of_levels_and_queues_have_the_columns_of_kube_apiserver() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        assert_eq!(
            world.telemetry.dump(Dump::PriorityLevels).await,
            concat!(
                "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests\n",
                "catch-all,         0,            true,   false,       0,               0,                 0,                  0,                0,                0\n",
                "exempt,            0,            true,   false,       0,               0,                 0,                  0,                0,                0\n",
                "narrow,            1,            false,  false,       2,               1,                 1,                  0,                0,                0\n",
                "strict,            0,            true,   false,       0,               0,                 0,                  0,                0,                0\n",
            )
        );
        let queues = world.telemetry.dump(Dump::Queues).await;
        let rows: Vec<Vec<&str>> = cells(&queues);
        assert_eq!(rows.len(), 5);
        assert_eq!(
            rows[0],
            [
                "PriorityLevelName",
                "Index",
                "PendingRequests",
                "ExecutingRequests",
                "SeatsInUse",
                "NextDispatchR",
                "InitialSeatsSum",
                "MaxSeatsSum",
                "TotalWorkSum"
            ]
        );
        let busy: Vec<_> = rows[1..].iter().filter(|row| row[2] != "0").collect();
        assert_eq!(busy.len(), 1);
        assert_eq!(busy[0][2..5], ["2", "1", "1"]);
        assert_eq!(busy[0][6..], ["2", "2", "0.00600000ss"]);
        drop(sent);
    });
}

#[test]
fn the_dump_of_requests_has_the_columns_of_kube_apiserver() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let queues = world.telemetry.dump(Dump::Queues).await;
        let rows = cells(&queues);
        let busy = rows[1..].iter().find(|row| row[2] != "0").unwrap();
        let queue = busy[1];

        let plain = Dump::of(b"/debug/api_priority_and_fairness/dump_requests", None).unwrap();
        let requests = world.telemetry.dump(plain).await;
        let rows = cells(&requests);
        assert_eq!(
            rows[0],
            [
                "PriorityLevelName",
                "FlowSchemaName",
                "QueueIndex",
                "RequestIndexInQueue",
                "FlowDistingsher",
                "ArriveTime",
                "InitialSeats",
                "FinalSeats",
                "AdditionalLatency",
                "StartTime"
            ]
        );
        let indices: Vec<_> = rows[1..].iter().map(|row| (row[2], row[3])).collect();
        assert_eq!(indices, [(queue, "0"), (queue, "1"), (queue, "-1")]);
        for row in &rows[1..] {
            assert_eq!(row[..2], ["narrow", "elephants"]);
            assert_eq!(row[4], "ann");
            assert_eq!(row[6..9], ["1", "0", "0s"]);
            let arrived: jiff::Timestamp = row[5].parse().unwrap();
            assert!(row[5].ends_with('Z') && arrived.as_second() > 0);
        }
        assert_eq!(rows[1][9], "0001-01-01T00:00:00Z");
        assert_eq!(rows[3][9], rows[3][5], "it started when it arrived");
        let arrived = |row: usize| rows[row][5].parse::<jiff::Timestamp>().unwrap();
        assert_eq!(
            arrived(1).as_nanosecond() - arrived(3).as_nanosecond(),
            500_000_000
        );
        drop(sent);
    });
}

#[test]
fn details_are_the_user_and_the_attributes_of_the_request() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let query = Some("x=1&includeRequestDetails=yes");
        let dump = Dump::of(b"/debug/api_priority_and_fairness/dump_requests", query).unwrap();
        let requests = world.telemetry.dump(dump).await;
        let rows = cells(&requests);
        assert_eq!(
            rows[0][10..],
            [
                "UserName",
                "Verb",
                "APIPath",
                "Namespace",
                "Name",
                "APIVersion",
                "Resource",
                "SubResource"
            ]
        );
        assert_eq!(
            rows[3][10..],
            [
                "ann",
                "get",
                "/api/v1/namespaces/hold/pods/a",
                "hold",
                "a",
                "v1",
                "pods",
                ""
            ]
        );
        drop(sent);
    });
    let empty = Some("includeRequestDetails=");
    let dump = Dump::of(b"/debug/api_priority_and_fairness/dump_requests", empty);
    assert_eq!(dump, Some(Dump::Requests { details: false }));
}

#[test]
fn the_dump_of_tenants_says_whose_flows_weigh_how_much() {
    local(async {
        let mut world = World::new();
        let path = "/debug/api_priority_and_fairness/dump_tenants";
        assert_eq!(world.get(path, "ann").await.status, 403);
        let dump = Dump::of(path.as_bytes(), None).unwrap();
        let idle = world.telemetry.dump(dump).await;
        assert_eq!(idle.lines().count(), 1, "{idle}");
        let sent = world.crowd().await;
        let tenants = world.telemetry.dump(dump).await;
        assert_eq!(
            cells(&tenants),
            [
                [
                    "PriorityLevelName",
                    "TenantKind",
                    "Tenant",
                    "Flows",
                    "Weight",
                    "WaitingRequests",
                    "SeatsInUse"
                ],
                ["narrow", "user", "ann", "1", "1", "2", "1"],
            ]
        );
        drop(sent);
    });
}

#[test]
fn on_the_main_port_only_masters_see_the_dumps() {
    local(async {
        let mut world = World::new();
        let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
        let refused = world.get(dump, "ann").await;
        assert_eq!(refused.status, 403);
        let status: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(status["reason"], "Forbidden");
        let shown = world.get(dump, "root/system:masters").await;
        assert_eq!(shown.status, 200);
        assert!(shown.text().starts_with("PriorityLevelName, ActiveQueues"));
        assert_eq!(shown.headers["content-type"], "text/plain; charset=utf-8");
        assert!(
            shown.headers.contains_key("x-kubernetes-pf-flowschema-uid"),
            "it was classified"
        );
        let unknown = "/debug/api_priority_and_fairness/dump_everything";
        assert_eq!(world.get(unknown, "root/system:masters").await.status, 404);
        let posted = world.send(Method::POST, dump, "root/system:masters").await;
        assert_eq!(posted.await.unwrap().status, 405);
        let passed = world.get("/debug/api_priority_and_fairness", "ann").await;
        assert_eq!((passed.status, passed.text()), (200, "hello"));
    });
}
