//! HTTP/2 frame by frame: what the gateway sends upstream, and an upstream that sends the frames a test chooses.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const ENHANCE_YOUR_CALM: u32 = 0xb;

const PREFACE: usize = 24;

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

/// Reads a frame, and returns its head and all its bytes.
async fn frame(from: &mut OwnedReadHalf) -> Option<(Frame, Vec<u8>)> {
    let mut bytes = vec![0; 9];
    from.read_exact(&mut bytes).await.ok()?;
    let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
    let frame = Frame {
        kind: bytes[3],
        flags: bytes[4],
        stream: u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & 0x7fff_ffff,
    };
    bytes.resize(9 + length, 0);
    from.read_exact(&mut bytes[9..]).await.ok()?;
    Some((frame, bytes))
}

/// Sits between the gateway and an upstream, and records which frames the gateway sends.
pub struct Tap {
    pub address: SocketAddr,
    /// The frames of each connection, in the order of the connections.
    seen: Arc<Mutex<Vec<Vec<Frame>>>>,
}

impl Tap {
    pub async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Vec<Frame>>>>::default();
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((gateway, _)) = listener.accept().await {
                let index = {
                    let mut log = log.lock().unwrap();
                    log.push(Vec::new());
                    log.len() - 1
                };
                tokio::spawn(relay(gateway, upstream, log.clone(), index));
            }
        });
        Self { address, seen }
    }

    /// How many frames of this kind came over each connection.
    pub fn count(&self, kind: u8) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        let count = |frames: &Vec<Frame>| frames.iter().filter(|frame| frame.kind == kind).count();
        seen.iter().map(count).collect()
    }

    /// How many frames of this kind came over all connections.
    pub fn total(&self, kind: u8) -> usize {
        self.count(kind).into_iter().sum()
    }
}

async fn relay(
    gateway: TcpStream,
    upstream: SocketAddr,
    log: Arc<Mutex<Vec<Vec<Frame>>>>,
    index: usize,
) {
    gateway.set_nodelay(true).unwrap();
    let Ok(upstream) = TcpStream::connect(upstream).await else {
        return;
    };
    upstream.set_nodelay(true).unwrap();
    let (mut from_gateway, mut to_gateway) = gateway.into_split();
    let (mut from_upstream, mut to_upstream) = upstream.into_split();
    let back = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_upstream, &mut to_gateway).await;
    });
    let mut preface = [0; PREFACE];
    if from_gateway.read_exact(&mut preface).await.is_ok() {
        let _ = to_upstream.write_all(&preface).await;
        while let Some((frame, bytes)) = frame(&mut from_gateway).await {
            log.lock().unwrap()[index].push(frame);
            if to_upstream.write_all(&bytes).await.is_err() {
                break;
            }
        }
    }
    drop(to_upstream);
    back.abort();
}

/// An upstream that, after its first `SETTINGS`, sends only the frames that the test tells it to.
pub struct ByHand {
    pub address: SocketAddr,
    connections: mpsc::UnboundedReceiver<Connection>,
}

impl ByHand {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, connections) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (mut from, to) = stream.into_split();
                let mut connection = Connection { from: None, to };
                from.read_exact(&mut [0; PREFACE]).await.unwrap();
                connection.say(SETTINGS, 0, 0, &[]).await;
                connection.from = Some(from);
                if send.send(connection).is_err() {
                    return;
                }
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// The next connection.
    pub async fn accept(&mut self) -> Connection {
        self.connections.recv().await.unwrap()
    }
}

pub struct Connection {
    from: Option<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Connection {
    pub async fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.to.write_all(&bytes).await.unwrap();
    }

    /// The stream of the next request; settings are acknowledged on the way.
    pub async fn request(&mut self) -> u32 {
        loop {
            let from = self.from.as_mut().unwrap();
            let (frame, _) = frame(from).await.expect("the connection stays open");
            match frame.kind {
                HEADERS => return frame.stream,
                SETTINGS if frame.flags & 1 == 0 => self.say(SETTINGS, 1, 0, &[]).await,
                _ => {}
            }
        }
    }

    /// Sends a 200 without a body.
    pub async fn answer(&mut self, stream: u32) {
        // END_STREAM and END_HEADERS; `:status: 200` is number 8 of HPACK's table.
        self.say(HEADERS, 1 | 4, stream, &[0x88]).await;
    }

    pub async fn go_away(&mut self, last: u32, code: u32) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&code.to_be_bytes());
        self.say(GOAWAY, 0, 0, &payload).await;
    }
}
