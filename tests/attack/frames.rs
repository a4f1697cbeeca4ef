//! HTTP/2 frames written by hand, and a connection that sends them whatever the protocol says.
//!
//! HTTP/2 libraries refuse to send what attackers send. Frames here are built from their fields
//! (RFC 9113, section 4) and header blocks from literals that use no state (RFC 7541, section 6.2.2).

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// `END_STREAM` of HEADERS and DATA; `ACK` of SETTINGS and PING.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Settings that the attacks change.
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const CANCEL: u32 = 8;

/// A frame of these fields.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame's payload is short");
    let mut bytes = Vec::with_capacity(9 + payload.len());
    bytes.extend_from_slice(&length.to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame of settings.
pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// A frame that cancels a stream.
pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

/// The header block of a request; without a token it is anonymous.
pub(crate) fn block(method: &str, path: &str, token: Option<&str>) -> Vec<u8> {
    let mut block = vec![0x86];
    match method {
        "GET" => block.push(0x82),
        "POST" => block.push(0x83),
        _ => {
            block.push(0x02);
            text(&mut block, method);
        }
    }
    block.push(0x04);
    text(&mut block, path);
    block.push(0x01);
    text(&mut block, "gate");
    if let Some(token) = token {
        // The static table's entry 23, `authorization`: 15 and 8 more.
        block.extend_from_slice(&[0x0f, 0x08]);
        text(&mut block, &format!("Bearer {token}"));
    }
    block
}

/// A header of any name, to be added to a block.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0];
    text(&mut block, name);
    text(&mut block, value);
    block
}

/// A string literal without Huffman coding.
fn text(block: &mut Vec<u8>, text: &str) {
    const PREFIX: usize = 127;
    let mut rest = text.len();
    if let Some(short) = u8::try_from(rest).ok().filter(|_| rest < PREFIX) {
        block.push(short);
    } else {
        block.push(0x7f);
        rest -= PREFIX;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).expect("seven bits") | 0x80);
            rest /= 128;
        }
        block.push(u8::try_from(rest).expect("seven bits"));
    }
    block.extend_from_slice(text.as_bytes());
}

/// A request without a body, in one frame.
pub(crate) fn get(stream: u32, path: &str, token: Option<&str>) -> Vec<u8> {
    frame(
        kind::HEADERS,
        END_HEADERS | END_STREAM,
        stream,
        &block("GET", path, token),
    )
}

/// What was received on a connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    ended: AtomicBool,
    goaway: AtomicBool,
    answers: AtomicU64,
    served: AtomicU64,
}

impl Seen {
    /// Whether the gateway has ended the connection, or said that it will.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.goaway.load(Ordering::Relaxed)
    }

    /// The number of response heads.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// The number of responses with status 200.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

/// An attacker's connection, in plain text.
pub(crate) struct RawConnection {
    write: OwnedWriteHalf,
    seen: Arc<Seen>,
    reader: JoinHandle<()>,
    next: u32,
}

impl RawConnection {
    /// Opens a connection with these settings, and reads everything that arrives.
    pub(crate) async fn open(address: SocketAddr, values: &[(u16, u32)]) -> io::Result<Self> {
        Self::start(address, values, true).await
    }

    /// Opens a connection from which nothing is read.
    pub(crate) async fn open_deaf(address: SocketAddr) -> io::Result<Self> {
        Self::start(address, &[], false).await
    }

    async fn start(address: SocketAddr, values: &[(u16, u32)], reads: bool) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, mut write) = stream.into_split();
        let mut hello = PREFACE.to_vec();
        hello.extend_from_slice(&settings(values));
        hello.extend_from_slice(&frame(kind::SETTINGS, ACK, 0, &[]));
        write.write_all(&hello).await?;
        let seen = Arc::<Seen>::default();
        let noted = Arc::clone(&seen);
        let reader = tokio::spawn(async move {
            if reads {
                let _ = read_frames(read, &noted).await;
                noted.ended.store(true, Ordering::Relaxed);
            } else {
                // Held, so that the connection stays open.
                let _read = read;
                std::future::pending::<()>().await;
            }
        });
        Ok(Self {
            write,
            seen,
            reader,
            next: 1,
        })
    }

    /// The number of a new stream.
    pub(crate) fn stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// Sends bytes; an error means that the gateway has ended the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.write.write_all(bytes).await;
        if sent.is_err() {
            self.seen.ended.store(true, Ordering::Relaxed);
        }
        sent
    }

    /// Has room for a GiB of responses on the connection; without it, for the first 64 KiB.
    pub(crate) async fn widen_window(&mut self) -> io::Result<()> {
        const GIB: u32 = 1 << 30;
        self.send(&frame(kind::WINDOW_UPDATE, 0, 0, &GIB.to_be_bytes()))
            .await
    }

    /// Sends bytes within `limit`.
    pub(crate) async fn send_within(&mut self, limit: Duration, bytes: &[u8]) -> io::Result<()> {
        tokio::time::timeout(limit, self.send(bytes)).await?
    }

    /// Sends a request without a body; returns its stream.
    pub(crate) async fn get(&mut self, path: &str, token: Option<&str>) -> io::Result<u32> {
        let stream = self.stream();
        self.send(&get(stream, path, token)).await?;
        Ok(stream)
    }

    /// What was received so far.
    pub(crate) fn seen(&self) -> &Arc<Seen> {
        &self.seen
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Reads frames to the end of the connection, and records what matters to attackers.
async fn read_frames(mut read: OwnedReadHalf, seen: &Seen) -> io::Result<()> {
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 9];
        read.read_exact(&mut head).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        payload.resize(length, 0);
        read.read_exact(&mut payload).await?;
        match head[3] {
            kind::GOAWAY => seen.goaway.store(true, Ordering::Relaxed),
            kind::HEADERS => {
                seen.answers.fetch_add(1, Ordering::Relaxed);
                // The static table's entry 8; a change of the table's size may come before it.
                let is_served = payload.iter().take(3).any(|byte| *byte == 0x88);
                seen.served
                    .fetch_add(u64::from(is_served), Ordering::Relaxed);
            }
            _ => {}
        }
    }
}
