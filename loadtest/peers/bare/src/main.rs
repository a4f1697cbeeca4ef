//! Reverse proxies without features: what remains of fairgate's cost beside one of them is what its features cost.
//!
//! The server is hyper's, as fairgate's is. The client is hyper-util's with its pool of connections, or the HTTP/1 client of
//! fairgate with a list of idle ones. Requests go to one server as they come: nobody is authenticated, nothing is parsed,
//! limited, counted or logged, and no header is added. Allocator and threads are as in fairgate: a runtime for each thread,
//! and nothing that threads share; each has a listener of its own on the same port.
//!
//! Not here: TLS, upgrades, time-outs, and what a proxy needs before it may meet clients that are not its own.

mod hyper_client;
mod own_client;

use std::{io, net::SocketAddr, num::NonZero, rc::Rc, thread};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use http::{Request, Response, StatusCode, Uri};
use http_body::Body;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
};

use fairgate_base::descriptor_limit::raise_descriptor_limit;
use fairgate_base::{local::LocalExecutor, turns};
use hyper_client::PooledClient;
use own_client::OwnClient;

#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Length of the kernel's queue of connections that are not accepted yet, as in fairgate.
const BACKLOG: u32 = 4096;

/// A reverse proxy without features.
#[derive(Clone, Debug, Parser)]
#[command(name = "fairgate-bare", version)]
struct BareArgs {
    /// The client that sends requests to the upstream.
    #[arg(long, value_enum)]
    client: ClientKind,
    /// Where it listens, by HTTP/1.1.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The upstream.
    #[arg(long, value_name = "ADDRESS")]
    upstream: SocketAddr,
    /// Threads, each with a runtime of its own.
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZero<usize>,
    /// HTTP/2 without TLS on both sides; only with hyper's client.
    #[arg(long)]
    http2: bool,
}

/// Who sends requests to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClientKind {
    /// hyper-util's client with its pool.
    Hyper,
    /// fairgate's own HTTP/1 client.
    Own,
}

fn main() -> anyhow::Result<()> {
    let args = BareArgs::parse();
    anyhow::ensure!(
        !args.http2 || args.client == ClientKind::Hyper,
        "--http2 needs --client hyper: the other client speaks HTTP/1 only"
    );
    raise_descriptor_limit();
    let mut threads = Vec::new();
    for number in 0..args.threads.get() {
        let args = args.clone();
        let thread = thread::Builder::new().name(format!("bare-{number}"));
        threads.push(thread.spawn(move || run(&args))?);
    }
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    Ok(())
}

/// Serves on the calling thread.
fn run(args: &BareArgs) -> anyhow::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(runtime::LocalOptions::default())?;
    runtime.block_on(async {
        let listener = listen(args.listen)
            .with_context(|| format!("cannot listen at {}; use another port", args.listen))?;
        match args.client {
            ClientKind::Hyper => {
                let client = PooledClient::new(args.upstream, args.http2)?;
                let client = Rc::new(client);
                accept(listener, args.http2, move |request| {
                    Rc::clone(&client).forward(request)
                })
                .await
            }
            ClientKind::Own => {
                let client = OwnClient::new(args.upstream);
                accept(listener, false, move |request| {
                    Rc::clone(&client).forward(request)
                })
                .await
            }
        }
    })
}

/// Listens beside the other threads: the kernel gives each connection to one of them.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections; `forward` sends a request to the upstream, and returns its response.
async fn accept<F, R, B>(listener: TcpListener, http2: bool, forward: F) -> anyhow::Result<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + 'static,
    R: Future<Output = anyhow::Result<Response<B>>> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        turns::spawn_local(serve(stream, http2, forward.clone()));
    }
}

/// Serves a connection. A request without a response ends it.
async fn serve<F, R, B>(stream: TcpStream, http2: bool, forward: F)
where
    F: Fn(Request<Incoming>) -> R + 'static,
    R: Future<Output = anyhow::Result<Response<B>>> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // If it fails, responses are only slower.
    let _ = stream.set_nodelay(true);
    let service = service_fn(forward);
    let io = TokioIo::new(stream);
    let served = if http2 {
        let builder = http2::Builder::new(LocalExecutor);
        builder.serve_connection(io, service).await
    } else {
        http1::Builder::new().serve_connection(io, service).await
    };
    // A client that leaves is no error, and any other shows in the load tests.
    drop(served);
}

/// The path and query of a request as they came.
fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}

/// Removes the headers of a response that are about one connection.
fn remove_hop_by_hop<B>(response: &mut Response<B>) -> anyhow::Result<()> {
    // Upgrades are not forwarded.
    anyhow::ensure!(
        response.status() != StatusCode::SWITCHING_PROTOCOLS,
        "the upstream switched protocols"
    );
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        response.headers_mut().remove(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
