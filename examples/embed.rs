//! A gateway inside another program: from a configuration to a drained shutdown.
//!
//! ```sh
//! cargo run --example embed
//! ```
//!
//! `fairgate::app::serve` runs a gateway that owns its process: it installs the logger and waits for
//! signals. `fairgate::app::start`, used here, does neither, so a program can start several gateways
//! and stop each at any time.

use std::{
    env,
    error::Error,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process,
};

use fairgate::{app, config::Config, observe::GatewayMetrics};

/// A gateway without an upstream, which hosts the flow control API itself. Port 0 lets the system
/// choose a free port.
const CONFIGURATION: &str = "
apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: standalone
listen:
  address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
authentication:
  tokenReview:
    enabled: false
drain:
  delay: 0s
  grace: 1s
";

/// Sends one request, and returns the whole response as text.
fn get(address: SocketAddr, path: &str) -> Result<String, Box<dyn Error>> {
    let mut connection = TcpStream::connect(address)?;
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut response = String::new();
    connection.read_to_string(&mut response)?;
    Ok(response)
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    // Relative paths in the configuration, here that of the store, begin at this directory.
    let reading = Config::parse("embed.yaml", directory, CONFIGURATION.as_bytes());
    let (config, warnings) = reading.usable()?;
    for warning in warnings {
        eprintln!("{warning}");
    }

    let gateway = app::start(config, None, GatewayMetrics::new())?;
    println!("clients: http://{}", gateway.address());
    println!("metrics: http://{}/metrics", gateway.admin_address());

    let version = get(gateway.address(), "/version")?;
    let status = version.lines().next().unwrap_or_default();
    println!("GET /version: {status}");
    assert_eq!(status, "HTTP/1.1 200 OK");

    // Accepts nothing new, and gives running requests `drain.grace` to end. Dropping the gateway
    // would end them at once.
    gateway.shut_down();
    println!("drained");
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::temp_dir().join(format!("fairgate-embed-{}", process::id()));
    fs::create_dir_all(&directory)?;
    let result = run(&directory);
    fs::remove_dir_all(&directory)?;
    result
}
