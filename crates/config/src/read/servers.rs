//! Reads `upstream.servers`: several API servers, each with its seats.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use fairgate_core::servers::equal_parts;

use crate::{
    config::{Config, ServerConfig},
    pem,
    section::{ConfigReader, ConfigSection},
    url::UpstreamUrl,
    values::{InvalidValue, Setting, shown, text},
};

/// The keys of an entry.
const KEYS: [&str; 5] = ["url", "seats", "resolve", "caFile", "tlsServerName"];
/// The most servers, and addresses of names together, are not limited; more entries than this are a mistake.
const MOST_SERVERS: usize = 64;

/// The entries as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WrittenServers(Vec<WrittenServer>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct WrittenServer {
    url: UpstreamUrl,
    seats: Option<u32>,
    resolve: bool,
    ca_file: Option<String>,
    tls_server_name: Option<String>,
}

impl Setting for WrittenServers {
    fn notation() -> String {
        "list of servers".to_owned()
    }

    fn read(value: &Value) -> Result<Self, InvalidValue> {
        let entries = value.as_array().ok_or_else(|| {
            InvalidValue::new(
                format!("{} is not a list", shown(value)),
                "write one entry for each server, as - url: https://10.0.0.1:6443",
            )
        })?;
        if entries.len() > MOST_SERVERS {
            return Err(InvalidValue::new(
                format!("{} servers", entries.len()),
                format!("write at most {MOST_SERVERS}, or one name with resolve: true"),
            ));
        }
        let read = |(index, entry): (usize, &Value)| {
            server(entry).map_err(|invalid| {
                InvalidValue::new(format!("[{index}]: {}", invalid.problem), invalid.remedy)
            })
        };
        entries
            .iter()
            .enumerate()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn shown(&self) -> String {
        let shown = |server: &WrittenServer| {
            let seats = server.seats.map(|seats| format!(" ({seats} seats)"));
            let resolved = if server.resolve { ", each address" } else { "" };
            format!(
                "{}{}{resolved}",
                server.url.authority(),
                seats.unwrap_or_default()
            )
        };
        format!(
            "[{}]",
            self.0.iter().map(shown).collect::<Vec<_>>().join(", ")
        )
    }

    fn shown_as(&self, _text: String) -> String {
        self.shown()
    }
}

fn server(entry: &Value) -> Result<WrittenServer, InvalidValue> {
    let entry = entry.as_object().ok_or_else(|| {
        InvalidValue::new(
            format!("{} is not a mapping", shown(entry)),
            "write - url: https://10.0.0.1:6443",
        )
    })?;
    if let Some(unknown) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(InvalidValue::new(
            format!("{unknown:?} is not a key of a server"),
            format!("write one of {}", KEYS.join(", ")),
        ));
    }
    let url = present(entry, "url")
        .ok_or_else(|| InvalidValue::new("it has no url", "write url: https://10.0.0.1:6443"))?;
    let seats =
        present(entry, "seats").map(|value| {
            let seats = value.as_u64().and_then(|seats| u32::try_from(seats).ok());
            let seats = seats.filter(|seats| (1..=10_000_000).contains(seats));
            seats.ok_or_else(|| {
            InvalidValue::new(
                format!("seats: {} is not a whole number from 1 to 10000000", shown(value)),
                "write the server's --max-requests-inflight plus --max-mutating-requests-inflight",
            )
        })
        });
    let ca_file = present(entry, "caFile").map(text).transpose()?;
    let name = present(entry, "tlsServerName").map(written_server_name);
    Ok(WrittenServer {
        url: UpstreamUrl::parse(&text(url)?)?,
        seats: seats.transpose()?,
        resolve: present(entry, "resolve")
            .map(bool::read)
            .transpose()?
            .unwrap_or_default(),
        ca_file: ca_file.filter(|path| !path.is_empty()),
        tls_server_name: name.transpose()?.filter(|name| !name.is_empty()),
    })
}

/// The name in a server's certificate; empty text is none.
pub(super) fn written_server_name(value: &Value) -> Result<String, InvalidValue> {
    let name = text(value)?;
    if name.is_empty() || rustls::pki_types::ServerName::try_from(name.as_str()).is_ok() {
        return Ok(name);
    }
    Err(InvalidValue::new(
        format!("{name:?} is neither a DNS name nor an IP address"),
        "write the name in the upstream's certificate",
    ))
}

fn present<'a>(entry: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    entry.get(key).filter(|value| !value.is_null())
}

/// The servers, with the certificates in the files that they name.
pub(super) fn servers(section: &mut ConfigSection<'_>) -> Vec<ServerConfig> {
    let WrittenServers(written) = section.get("servers");
    let mut servers = Vec::with_capacity(written.len());
    for (index, server) in written.into_iter().enumerate() {
        let field = format!("{}[{index}].caFile", section.field("servers"));
        let authorities = server.ca_file.as_ref().and_then(|path| {
            let path = section.reader.relative_path(path);
            let contents = section.reader.contents(&field, &path)?;
            pem::authorities(&path, &contents)
                .map_err(|invalid| {
                    let problem = format!("{}: {}", path.display(), invalid.problem);
                    section.reader.error(&field, problem, invalid.remedy);
                })
                .ok()
        });
        servers.push(ServerConfig {
            url: server.url,
            seats: server.seats,
            resolve: server.resolve,
            has_authorities: server.ca_file.is_some(),
            authorities,
            tls_server_name: server.tls_server_name,
        });
    }
    servers
}

/// What the servers must fulfil together.
pub(super) fn validate(reader: &mut ConfigReader, config: &Config) {
    let servers = &config.upstream.servers;
    if servers.is_empty() {
        return;
    }
    let field = |index: usize, key: &str| format!("upstream.servers[{index}].{key}");
    if reader.is_written("upstream.url") {
        reader.error(
            "upstream.url",
            "set, and upstream.servers is set, too",
            "keep one of them; upstream.url is the short form for one server",
        );
    }
    let mut seen = BTreeSet::new();
    for (index, server) in servers.iter().enumerate() {
        if !seen.insert(server.url.authority()) {
            reader.error(
                &field(index, "url"),
                format!("{} is there twice", server.url.authority()),
                "remove one of the two",
            );
        }
        if server.url.tls != servers[0].url.tls {
            reader.error(
                &field(index, "url"),
                "some servers are https:// and others http://",
                "write the same scheme for all",
            );
        }
        // The first server's URL is also that of the upstream, which is compared with the gateway's addresses for all modes.
        if index > 0 && config.listen.address.to_string() == server.url.authority() {
            reader.error(
                &field(index, "url"),
                "the gateway's own listen.address",
                "write the API server's address",
            );
        }
        if !server.url.tls && (server.has_authorities || server.tls_server_name.is_some()) {
            reader.error(
                &field(index, "url"),
                "http://, but it has a caFile or a tlsServerName",
                "write https://, or remove them",
            );
        }
    }
    validate_seats(reader, config);
}

fn validate_seats(reader: &mut ConfigReader, config: &Config) {
    let servers = &config.upstream.servers;
    let with_seats: Vec<u32> = servers.iter().filter_map(|server| server.seats).collect();
    if with_seats.is_empty() {
        return;
    }
    if let Some(index) = servers.iter().position(|server| server.seats.is_none()) {
        reader.error(
            &format!("upstream.servers[{index}].seats"),
            "not set, but other servers have seats",
            "set the seats of all servers, or of none: then each has an equal part of flowControl.totalSeats",
        );
        return;
    }
    let sum: u64 = with_seats.iter().copied().map(u64::from).sum();
    if reader.is_written("flowControl.totalSeats") {
        let each = if servers.iter().any(|server| server.resolve) {
            ", with one address for each name"
        } else {
            ""
        };
        reader.error(
            "flowControl.totalSeats",
            format!("set, and upstream.servers have {sum} seats together{each}"),
            "remove it, or remove the seats of the servers",
        );
    }
    if sum > 10_000_000 {
        reader.error(
            "upstream.servers",
            format!("{sum} seats together are more than 10000000"),
            "decrease them",
        );
    }
}

impl Config {
    /// Several servers, each with its seats: its own, or its part of `flowControl.totalSeats`. Each address of a name that is resolved has
    /// the seats of the name, or a part of its part.
    pub fn seats_of_servers(&self) -> impl Iterator<Item = (&ServerConfig, u32)> {
        let servers = &self.upstream.servers;
        let parts = equal_parts(self.flow_control.total_seats, servers.len());
        let seats = |(server, part): (_, _)| (server, ServerConfig::seats_or(server, part));
        servers.iter().zip(parts).map(seats)
    }
}

impl ServerConfig {
    fn seats_or(&self, part: u32) -> u32 {
        self.seats.unwrap_or(part)
    }
}

/// The seats that all servers have together, if each has its own; of a name that is resolved as if it had one address.
pub(super) fn seats_together(servers: &[ServerConfig]) -> Option<u32> {
    let mut seats = servers.iter().map(|server| server.seats);
    let sum = seats.try_fold(0_u32, |sum, seats| Some(sum.saturating_add(seats?)));
    sum.filter(|sum| *sum > 0)
}
