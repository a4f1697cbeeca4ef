//! What a gateway that stops leaves to the others.

use super::*;

/// How many milliseconds the requests take whose clients leave: longer than the gateway takes to stop, and less long than the others wait
/// for a gateway that is silent.
const LONG: usize = 9_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_keeps_the_seats_of_requests_whose_clients_have_left() {
    let server = Arc::<Server>::default();
    let mut members = three(&server).await;
    let address = members[0].running().address();
    let long: Vec<_> = (0..LIMIT)
        .map(|_| tokio::spawn(send_to(address, "alice", || format!("{WORK}?takes={LONG}"))))
        .collect();
    let most = LIMIT - 4;
    let mut seen = 0;
    let waiting = async {
        while seen < most {
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen = server.executing.now.load(Ordering::SeqCst);
        }
    };
    let waited = tokio::time::timeout(HANG, waiting).await;
    assert!(waited.is_ok(), "{seen} requests execute");
    long.iter().for_each(JoinHandle::abort);
    let others: Vec<_> = members[1..]
        .iter()
        .flat_map(|member| member.clients("bob", 2 * LIMIT))
        .collect();
    let running = members[0].running.take().unwrap();
    tokio::task::spawn_blocking(|| running.shut_down())
        .await
        .unwrap();
    // All of the long ones have ended, and the others have used what they have for as long.
    let served = |user: &str| server.served_by_user().get(user).copied().unwrap_or(0);
    soon(async {
        while served("alice") < most {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    others.iter().for_each(JoinHandle::abort);
    assert!(served("bob") > 2 * LIMIT, "{}", served("bob"));
    let most = server.executing.most();
    assert!(most <= LIMIT, "{most} requests executed at a time");
}
