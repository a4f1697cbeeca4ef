//! The end of idle connections, with a client that speaks HTTP/2 frame by frame.

use std::{convert::Infallible, time::Duration};

use fairgate_base::{clock::Clock, turns::spawn_local};
use fairgate_call::ReplyBody;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{LocalSet, yield_now},
    time::advance,
};
use tower::service_fn;

use super::*;
use crate::serve::{
    client_connections::ClientConnections, data_core::Core, drain::DrainController,
    settings::ServeSettings, wire::defence::Defence,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const LIMIT: Duration = Duration::from_millis(300);
/// More than that: timers are no finer than a millisecond.
const OVER: Duration = Duration::from_millis(310);

/// The client.
struct Frames(TcpStream);

impl Frames {
    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        self.0.write_all(&bytes).await.unwrap();
    }

    /// The flags and the payload of the next frame of this kind; `None` if the connection ends before.
    async fn next(&mut self, wanted: u8) -> Option<(u8, Vec<u8>)> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            if head[3] == wanted {
                return Some((head[4], payload));
            }
        }
    }
}

/// Lets all tasks do what they can at present.
async fn settle() {
    for _ in 0..1000 {
        yield_now().await;
    }
}

/// A core that answers each request with "served" when `answer` says so, and tells `arrived` of it. The result is a client of it.
async fn client(arrived: &Rc<Notify>, answer: &Rc<Notify>, phases: &DrainController) -> Frames {
    let clock = Clock::runtime();
    let settings = ServeSettings {
        idle_timeout: LIMIT,
        handshake_timeout: LIMIT,
        ..ServeSettings::default()
    };
    let (arrived, answer) = (Rc::clone(arrived), Rc::clone(answer));
    let stack = service_fn(move |_: Inbound| {
        let (arrived, answer) = (Rc::clone(&arrived), Rc::clone(&answer));
        async move {
            arrived.notify_one();
            answer.notified().await;
            Ok::<_, Infallible>(Reply::new(ReplyBody::full("served")))
        }
    });
    let (handle, core) = Core::new();
    let defence = Defence::new(settings.head_bytes, clock.clone());
    let phases = phases.subscribe();
    let load = Arc::clone(&handle.load);
    spawn_local(async move {
        let served = core.run(settings, defence, clock, phases, stack).await;
        served.unwrap();
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(connecting, listener.accept());
    let (stream, from) = accepted.unwrap();
    let connections = ClientConnections::new(1, None);
    let counted = CountedConnection::new(connections, load, from.ip()).unwrap();
    handle.serve(stream.into_std().unwrap(), from, counted);
    let mut client = Frames(client.unwrap());
    client
        .0
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    client.send(SETTINGS, 0, 0, &[]).await;
    client
}

#[tokio::test(start_paused = true)]
async fn a_request_that_crosses_the_end_of_an_idle_connection_is_served_to_its_end() {
    let served = async {
        // Time passes only as the test says: otherwise it would whenever all wait for a socket.
        spawn_local(async {
            loop {
                yield_now().await;
            }
        });
        let (arrived, answer) = <(Rc<Notify>, Rc<Notify>)>::default();
        let phases = DrainController::default();
        let mut client = client(&arrived, &answer, &phases).await;
        client.next(SETTINGS).await.unwrap();
        settle().await;
        advance(OVER).await;
        client.next(GOAWAY).await.unwrap();
        // The client never confirms that it got it. `GET /a` of `a` over `http`:
        let head = b"\x82\x86\x04\x02/a\x01\x01a";
        client
            .send(HEADERS, END_STREAM | END_HEADERS, 1, head)
            .await;
        arrived.notified().await;
        advance(3 * LIMIT).await;
        settle().await;
        answer.notify_one();
        let (flags, data) = client.next(DATA).await.expect("the response");
        assert_eq!(data, b"served");
        if flags & END_STREAM == 0 {
            let (flags, _) = client.next(DATA).await.expect("its end");
            assert_eq!(flags & END_STREAM, END_STREAM);
        }
        settle().await;
        advance(OVER).await;
        let rest = client.next(DATA).await;
        assert!(rest.is_none(), "the connection has ended: {rest:?}");
    };
    LocalSet::new().run_until(served).await;
}
