//! A client that takes nothing but well-formed responses, and notices every byte too many.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
};

use crate::client::HANG;

/// A body that is too large for the buffers on its way.
const LARGE_BODY: usize = 8 << 20;

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// The connection was closed within the body.
    Cut,
    /// The connection was closed before a response, which has the status 0 then.
    Nothing,
}

/// A response.
pub struct Received {
    pub status: u16,
    /// Names in lower case. Each byte of a value is a character.
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub ending: Ending,
}

impl Received {
    /// The value of a header; all of them in one if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(header, _)| header == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beginning = &self.body[..self.body.len().min(200)];
        let body = String::from_utf8_lossy(beginning);
        let (status, ending, length) = (self.status, self.ending, self.body.len());
        write!(f, "{status} {ending:?} {length} bytes {body:?} ")?;
        let headers = self.headers.iter().take(20);
        headers
            .clone()
            .try_for_each(|(name, value)| write!(f, "| {name}: {value:.80} "))
    }
}

/// Sends a request on a connection of its own.
///
/// # Errors
///
/// When the response is not well-formed, or does not end.
pub fn send(
    gateway: SocketAddr,
    method: &str,
    target: &str,
    body: &[u8],
) -> Result<Received, String> {
    let length = if method == "POST" {
        format!("Content-Length: {}\r\n", body.len())
    } else {
        String::new()
    };
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice-token\r\n\
         {length}Connection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect(gateway).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut bytes = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The gateway may answer, and close the connection, before it has read everything.
            let _ = writer.write_all(head.as_bytes());
            let _ = writer.write_all(body);
        });
        let ended = read_response(&mut stream, method, body.len(), &mut bytes);
        // Otherwise a body that the gateway does not read would be sent until the time limit.
        let _ = stream.shutdown(Shutdown::Both);
        match ended {
            Err(error) if is_timeout(&error) => Err("the response does not end".to_owned()),
            // Otherwise it may be complete nevertheless.
            Ok(()) | Err(_) => parse(method, &bytes),
        }
    })
}

/// Reads until the gateway closes the connection, so that no byte too many is missed. Only a client that is still sending a
/// large body does not wait for that: the gateway waits for the rest of the body.
fn read_response(
    stream: &mut TcpStream,
    method: &str,
    body_bytes: usize,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    if body_bytes < LARGE_BODY {
        return stream.read_to_end(bytes).map(drop);
    }
    let is_complete = |bytes: &[u8]| {
        parse(method, bytes).is_ok_and(|received| received.ending == Ending::Complete)
    };
    let mut part = [0; 4096];
    while !is_complete(bytes) {
        let length = stream.read(&mut part)?;
        if length == 0 {
            break;
        }
        bytes.extend(&part[..length]);
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Reads a response strictly as RFC 9112 demands it of a sender.
fn parse(method: &str, bytes: &[u8]) -> Result<Received, String> {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]);
    let wrong = |what: &str| format!("{what} in {shown:?}");
    if bytes.is_empty() {
        return Ok(Received {
            status: 0,
            headers: Vec::new(),
            body: Vec::new(),
            ending: Ending::Nothing,
        });
    }
    let end = find(bytes, b"\r\n\r\n").ok_or_else(|| wrong("no complete head"))?;
    let head: String = bytes[..end].iter().copied().map(char::from).collect();
    if head.replace("\r\n", "").contains(['\r', '\n', '\0']) {
        return Err(wrong("a control character"));
    }
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 "))
        .and_then(|line| line.get(..3)?.parse().ok())
        .filter(|status| (200..1000).contains(status))
        .ok_or_else(|| wrong("no final status"))?;
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("no colon"))?;
        if name.is_empty() || name.contains([' ', '\t']) {
            return Err(wrong("a bad header name"));
        }
        headers.push((name.to_ascii_lowercase(), value.trim_matches(' ').into()));
    }
    let has_body = method != "HEAD" && status != 204 && status != 304;
    let (body, ending) = read_body(&headers, has_body, &bytes[end + 4..]).map_err(wrong)?;
    Ok(Received {
        status,
        headers,
        body,
        ending,
    })
}

/// The body, and how it ended.
fn read_body(
    headers: &[(String, String)],
    has_body: bool,
    rest: &[u8],
) -> Result<(Vec<u8>, Ending), &'static str> {
    let values = |wanted: &str| -> Vec<&str> {
        let values = headers.iter().filter(|(name, _)| name == wanted);
        values.map(|(_, value)| value.as_str()).collect()
    };
    let lengths = values("content-length");
    let codings = values("transfer-encoding");
    match (has_body, &lengths[..], &codings[..]) {
        (_, [_, _, ..], _) => Err("several lengths"),
        (_, [_], [_, ..]) => Err("a length and a transfer coding"),
        (false, ..) if rest.is_empty() => Ok((Vec::new(), Ending::Complete)),
        (false, ..) => Err("a body where none may be"),
        (true, [length], []) => {
            let length = read_length(length).ok_or("a length that is no number")?;
            match (rest.len() as u64).cmp(&length) {
                std::cmp::Ordering::Less => Ok((rest.into(), Ending::Cut)),
                std::cmp::Ordering::Equal => Ok((rest.into(), Ending::Complete)),
                std::cmp::Ordering::Greater => Err("bytes after the body"),
            }
        }
        (true, [], ["chunked"]) => read_chunks(rest),
        (true, [], _) => Err("neither a length nor chunks"),
    }
}

/// A number. A client may also read a list of equal ones (RFC 9110, section 8.6).
fn read_length(value: &str) -> Option<u64> {
    let mut entries = value.split(',').map(str::trim);
    let first = entries.next()?;
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && entries.all(|entry| entry == first))
        .then(|| first.parse().ok())
        .flatten()
}

fn read_chunks(mut rest: &[u8]) -> Result<(Vec<u8>, Ending), &'static str> {
    let mut body = Vec::new();
    loop {
        let Some(end) = find(rest, b"\r\n") else {
            return Ok((body, Ending::Cut));
        };
        let size = std::str::from_utf8(&rest[..end]).map_err(|_| "a bad chunk size")?;
        let size = usize::from_str_radix(size, 16).map_err(|_| "a bad chunk size")?;
        rest = &rest[end + 2..];
        if size == 0 {
            return trailers_end(rest).map(|ending| (body, ending));
        }
        body.extend(&rest[..rest.len().min(size)]);
        if rest.len() < size + 2 {
            return Ok((body, Ending::Cut));
        }
        if &rest[size..size + 2] != b"\r\n" {
            return Err("a chunk without an end");
        }
        rest = &rest[size + 2..];
    }
}

/// How a body ends whose last chunk was read.
fn trailers_end(rest: &[u8]) -> Result<Ending, &'static str> {
    if rest.starts_with(b"\r\n") {
        return match rest.len() {
            2 => Ok(Ending::Complete),
            _ => Err("bytes after the body"),
        };
    }
    match find(rest, b"\r\n\r\n") {
        Some(end) if end + 4 == rest.len() => Ok(Ending::Complete),
        Some(_) => Err("bytes after the trailers"),
        None => Ok(Ending::Cut),
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}
