//! An upstream that answers clean requests properly and others as scripted.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::row::{Step, Then};
use crate::client::HANG;

/// What the upstream does with each request whose path begins with [`HOSTILE`].
#[derive(Clone)]
pub struct Script {
    pub reads_body: bool,
    pub steps: Vec<Step>,
    pub then: Then,
}

pub const HOSTILE: &str = "/hostile";
pub const CLEAN: &str = "/clean";

/// A request that came.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub target: String,
    /// Whether its connection had served another request.
    pub reused: bool,
}

/// The upstream. Each connection has a thread.
pub struct ScriptedUpstream {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    script: Mutex<Option<Script>>,
    progress: Mutex<Progress>,
    changed: Condvar,
    arrivals: Mutex<Vec<Arrival>>,
    streams: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Progress {
    /// How many scripts there were before.
    number: usize,
    /// Scripts that have not come to their end.
    running: usize,
    /// The client has its response.
    responded: bool,
    /// The clean requests are served.
    released: bool,
    problems: Vec<String>,
}

impl ScriptedUpstream {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let of_listener = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&of_listener);
                if shared.stopped.load(Ordering::SeqCst) {
                    break;
                }
                shared.connections.fetch_add(1, Ordering::SeqCst);
                shared
                    .streams
                    .lock()
                    .unwrap()
                    .push(stream.try_clone().unwrap());
                std::thread::spawn(move || Connection::serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// From now on, this is the script.
    pub fn plays(&self, script: Script) {
        *self.shared.script.lock().unwrap() = Some(script);
        let mut progress = self.shared.progress.lock().unwrap();
        *progress = Progress {
            number: progress.number + 1,
            ..Progress::default()
        };
        self.shared.arrivals.lock().unwrap().clear();
    }

    /// The client has its response. Returns when all scripts have come to their end.
    pub fn responded(&self) -> Vec<String> {
        let mut progress = self.shared.progress.lock().unwrap();
        progress.responded = true;
        self.shared.changed.notify_all();
        let waits = |progress: &mut Progress| progress.running > 0;
        let waiting = self
            .shared
            .changed
            .wait_timeout_while(progress, HANG, waits);
        let (progress, timeout) = waiting.unwrap();
        let mut problems = progress.problems.clone();
        if timeout.timed_out() {
            problems.push("the script does not come to its end".to_owned());
        }
        problems
    }

    /// Closes the connections that the script holds.
    pub fn release(&self) {
        self.shared.progress.lock().unwrap().released = true;
        self.shared.changed.notify_all();
    }

    /// Closes all connections.
    pub fn close_all(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The requests since the script began.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedUpstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.release();
        self.close_all();
    }
}

/// The head of a request.
struct Head {
    method: String,
    target: String,
    /// `None` for a chunked body.
    length: Option<usize>,
}

struct Connection<'a> {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    shared: &'a Shared,
}

impl<'a> Connection<'a> {
    fn serve(stream: TcpStream, shared: &'a Shared) {
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        let mut connection = Self {
            writer: stream.try_clone().unwrap(),
            reader: BufReader::new(stream),
            shared,
        };
        let mut reused = false;
        let mut running = None;
        let mut is_reset = false;
        while let Ok(Some(head)) = connection.read_head() {
            let arrival = Arrival {
                target: head.target.clone(),
                reused,
            };
            shared.arrivals.lock().unwrap().push(arrival);
            reused = true;
            if !head.target.starts_with(HOSTILE) {
                if connection.answer(&head).is_err() {
                    break;
                }
                continue;
            }
            running = Some(Running::begin(shared));
            match connection.play(&head, &mut running) {
                Ok(Then::Serve) => running = None,
                Ok(then) => {
                    is_reset = then == Then::Reset;
                    break;
                }
                Err(_) => break,
            }
        }
        if !is_reset {
            let _ = connection.writer.shutdown(Shutdown::Both);
        }
        // The script ends after the connection. A reset takes place when the last handle is dropped.
        drop(connection);
        drop(running);
    }

    /// `None` at the end of the connection.
    fn read_head(&mut self) -> io::Result<Option<Head>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let mut head = Head {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            length: Some(0),
        };
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                return Ok(Some(head));
            }
            if let Some(length) = line.strip_prefix("content-length:") {
                head.length = length.trim().parse().ok();
            } else if line.starts_with("transfer-encoding:") {
                head.length = None;
            }
        }
    }

    fn read_body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if let Some(length) = head.length {
            body.resize(length, 0);
            self.reader.read_exact(&mut body)?;
            return Ok(body);
        }
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
            let begin = body.len();
            body.resize(begin + size + 2, 0);
            self.reader.read_exact(&mut body[begin..])?;
            body.truncate(begin + size);
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// A proper answer, which names the request.
    fn answer(&mut self, head: &Head) -> io::Result<()> {
        let body = self.read_body(head)?;
        let body = clean_body(&head.method, &head.target, &body);
        let length = body.len();
        let status = if head.target.starts_with(CLEAN) {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
        self.writer.write_all(head.as_bytes())?;
        self.writer.write_all(&body)
    }

    /// Does as scripted, and returns what happens to the connection.
    fn play(&mut self, head: &Head, running: &mut Option<Running<'_>>) -> io::Result<Then> {
        let script = self.shared.script.lock().unwrap().clone();
        let script = script.ok_or_else(|| io::Error::other("no script"))?;
        if script.reads_body {
            self.read_body(head)?;
        }
        for step in &script.steps {
            self.take(step, head)?;
        }
        match script.then {
            Then::Serve | Then::Close => {}
            Then::Hold => {
                *running = None;
                self.wait(|progress| progress.released);
            }
            Then::Reset => {
                rustix::net::sockopt::set_socket_linger(&self.writer, Some(Duration::ZERO))?;
                self.forget();
            }
            Then::HalfClose => {
                self.writer.shutdown(Shutdown::Write)?;
                self.await_close();
            }
            Then::GatewayCloses => self.await_close(),
        }
        Ok(script.then)
    }

    fn take(&mut self, step: &Step, head: &Head) -> io::Result<()> {
        match step {
            Step::Send(bytes) => self.writer.write_all(bytes)?,
            Step::Drip(bytes) => {
                for byte in bytes {
                    self.writer.write_all(&[*byte])?;
                }
            }
            Step::ReadBody => drop(self.read_body(head)?),
            Step::AfterResponse => self.wait(|progress| progress.responded),
            Step::Flood(bytes, most) => {
                let mut sent = 0;
                while self.writer.write_all(bytes).is_ok() {
                    sent += bytes.len();
                    if sent > *most {
                        self.problem("the gateway reads without a limit");
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops the handle that [`ScriptedUpstream::close_all`] would use.
    fn forget(&self) {
        let peer = self.writer.peer_addr().ok();
        let mut streams = self.shared.streams.lock().unwrap();
        streams.retain(|stream| stream.peer_addr().ok() != peer);
    }

    fn await_close(&mut self) {
        self.reader.get_ref().set_read_timeout(Some(HANG)).unwrap();
        let mut rest = Vec::new();
        let read = self.reader.read_to_end(&mut rest);
        if read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.problem("the gateway does not close the connection");
        }
        if rest
            .windows(CLEAN.len())
            .any(|part| part == CLEAN.as_bytes())
        {
            self.problem("the connection was used again");
        }
    }

    fn problem(&self, what: &str) {
        let mut progress = self.shared.progress.lock().unwrap();
        progress.problems.push(what.to_owned());
    }

    fn wait(&self, holds: impl Fn(&Progress) -> bool) {
        let progress = self.shared.progress.lock().unwrap();
        let number = progress.number;
        let waits = |progress: &mut Progress| progress.number == number && !holds(progress);
        let waiting = self
            .shared
            .changed
            .wait_timeout_while(progress, HANG, waits);
        drop(waiting.unwrap());
    }
}

/// A script that is played.
struct Running<'a>(&'a Shared);

impl<'a> Running<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.progress.lock().unwrap().running += 1;
        Self(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock().unwrap();
        progress.running = progress.running.saturating_sub(1);
        self.0.changed.notify_all();
    }
}

/// The body of the answer to a clean request.
pub fn clean_body(method: &str, target: &str, body: &[u8]) -> Vec<u8> {
    [format!("{method} {target} ").as_bytes(), body].concat()
}
