//! What idle connections take: the memory of a process with many of them, and what it returns.
//!
//! They send one request each, one after another, so the proxy needs a single connection to the server, and what is measured
//! is the connections of clients.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};

use crate::{
    figures::real,
    process::ProcessMemory,
    scenario::ConnectionSpec,
    transport::{
        connection::{ConnectionPool, LoadClientError, PooledResponse},
        target::LoadTarget,
    },
};
use fairgate_upstream::dial::HttpVersion;

/// A proxy that is measured.
#[derive(Debug)]
pub(crate) struct IdleProxy {
    pub(crate) name: String,
    pub(crate) process: u32,
    pub(crate) target: Arc<LoadTarget>,
}

/// How it is measured.
#[derive(Clone, Debug)]
pub(crate) struct IdlePlan {
    pub(crate) connections: u32,
    pub(crate) path: String,
    pub(crate) user: String,
    /// The pause before each measurement.
    pub(crate) settle: Duration,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdleError {
    #[error("{name}: connection {number}: {source}")]
    Failed {
        name: String,
        number: u32,
        source: LoadClientError,
    },
    #[error("{name}: connection {number}: response {status}")]
    Status {
        name: String,
        number: u32,
        status: StatusCode,
    },
}

/// The memory of a proxy with idle connections.
#[derive(Clone, Debug)]
pub(crate) struct IdleCost {
    name: String,
    connections: u32,
    /// After the first request, with one connection.
    before: ProcessMemory,
    /// With all connections.
    open: ProcessMemory,
    /// After they were closed.
    closed: ProcessMemory,
}

/// Opens the connections, keeps them, and closes them.
///
/// # Errors
///
/// When a request has no response, or another one than 200.
pub(crate) async fn measure(proxy: &IdleProxy, plan: &IdlePlan) -> Result<IdleCost, IdleError> {
    let (target, connections) = (&proxy.target, plan.connections);
    let spec = ConnectionSpec {
        protocol: HttpVersion::Http1,
        connections: None,
        streams: 1,
        reconnect: Duration::ZERO,
    };
    let pool = ConnectionPool::new(Arc::clone(target), spec, connections + 1, false);
    let request = request(target, plan);
    // The first request makes what is made once, such as the connection to the server; no client's connection costs that.
    let mut idle = vec![exchange(&pool, &request, proxy, 0).await?];
    tokio::time::sleep(plan.settle).await;
    let before = ProcessMemory::read(proxy.process);
    for number in 1..=connections {
        idle.push(exchange(&pool, &request, proxy, number).await?);
    }
    tokio::time::sleep(plan.settle).await;
    let open = ProcessMemory::read(proxy.process);
    drop(idle);
    tokio::time::sleep(plan.settle).await;
    Ok(IdleCost {
        name: proxy.name.clone(),
        connections,
        before,
        open,
        closed: ProcessMemory::read(proxy.process),
    })
}

fn request(target: &LoadTarget, plan: &IdlePlan) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = plan.path.parse().unwrap_or_default();
    *request.headers_mut() = target.identity(&plan.user, &[]);
    let host = HeaderValue::try_from(target.authority.as_str());
    let host = host.unwrap_or(HeaderValue::from_static("localhost"));
    request.headers_mut().insert(header::HOST, host);
    request
}

/// Sends the request on a new connection, and reads its response. The connection is idle, and closed with the result.
async fn exchange<'p>(
    pool: &'p ConnectionPool,
    request: &Request<Full<Bytes>>,
    proxy: &IdleProxy,
    number: u32,
) -> Result<PooledResponse<'p>, IdleError> {
    let failed = |source| IdleError::Failed {
        name: proxy.name.clone(),
        number,
        source,
    };
    let mut pooled = pool.send(request).await.map_err(failed)?;
    while let Some(frame) = pooled.response.body_mut().frame().await {
        frame.map_err(|error| failed(error.into()))?;
    }
    match pooled.response.status() {
        StatusCode::OK => Ok(pooled),
        status => Err(IdleError::Status {
            name: proxy.name.clone(),
            number,
            status,
        }),
    }
}

/// The first line of a table of costs.
pub(crate) fn heading(connections: u32) -> String {
    format!(
        "{:<20} {:>10} {:>8} {:>8} {:>8} {:>9}\n{:<20} {:>10} {:>8} {:>8} {:>8} {:>9}",
        format!("{connections} connections"),
        "one takes",
        "before",
        "open",
        "closed",
        "returned",
        "",
        "KiB",
        "MiB",
        "MiB",
        "MiB",
        "%"
    )
}

impl IdleCost {
    /// KiB of one connection.
    fn kib(&self) -> f64 {
        (real(self.open.bytes) - real(self.before.bytes)) / 1024.0 / f64::from(self.connections)
    }

    /// The part of what the connections took that was returned after their end; 1 if they took nothing.
    fn returned(&self) -> f64 {
        let taken = real(self.open.bytes) - real(self.before.bytes);
        if taken <= 0.0 {
            return 1.0;
        }
        (real(self.open.bytes) - real(self.closed.bytes)) / taken
    }

    /// A line of a table.
    pub(crate) fn written(&self) -> String {
        let mib = |memory: ProcessMemory| real(memory.bytes) / f64::from(1 << 20);
        format!(
            "{:<20} {:>10.2} {:>8.1} {:>8.1} {:>8.1} {:>9.0}  {}",
            self.name,
            self.kib(),
            mib(self.before),
            mib(self.open),
            mib(self.closed),
            self.returned() * 100.0,
            self.open.kind.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        task::JoinSet,
    };

    use super::*;
    use crate::process::MemoryKind;

    fn memory(mib: u64) -> ProcessMemory {
        ProcessMemory {
            bytes: mib << 20,
            kind: MemoryKind::Proportional,
        }
    }

    #[test]
    fn a_line_says_what_a_connection_takes_and_what_is_returned() {
        let cost = IdleCost {
            name: "proxy".to_owned(),
            connections: 1024,
            before: memory(10),
            open: memory(18),
            closed: memory(12),
        };
        let words: Vec<String> = cost
            .written()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        assert_eq!(
            words,
            ["proxy", "8.00", "10.0", "18.0", "12.0", "75", "PSS"]
        );
        assert_eq!(heading(1024).lines().count(), 2);
        let nothing = IdleCost {
            open: memory(10),
            ..cost
        };
        assert!((nothing.returned() - 1.0).abs() < 1e-9);
    }

    /// Answers one request on each connection; returns how many of them were open at once once all have ended.
    async fn serve(listener: TcpListener, connections: usize) -> usize {
        let mut open = JoinSet::new();
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut head).await.unwrap() > 0);
            }
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(response).await.unwrap();
            open.spawn(async move { stream.read_u8().await.is_err() });
        }
        open.join_all()
            .await
            .into_iter()
            .filter(|ended| *ended)
            .count()
    }

    #[tokio::test]
    async fn each_connection_sends_one_request_and_is_kept_and_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let proxy = IdleProxy {
            name: "proxy".to_owned(),
            process: std::process::id(),
            target: Arc::new(LoadTarget::resolve(&url, None, false).await.unwrap()),
        };
        let plan = IdlePlan {
            connections: 9,
            path: "/api".to_owned(),
            user: "mouse".to_owned(),
            settle: Duration::ZERO,
        };
        let (measured, ended) = tokio::join!(measure(&proxy, &plan), serve(listener, 10));
        assert!(measured.unwrap().before.bytes > 1 << 20);
        assert_eq!(ended, 10);
    }
}
