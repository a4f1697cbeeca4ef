//! Ports of loopback on which nobody listens.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};

/// Where they are taken from. Systems give ports above to outgoing connections and to whoever binds port 0 (Linux from 32768
/// on), so a port from there may be taken before its user binds it. The tests in Go use 20000 to 29999.
const PORTS: Range<u16> = 10_000..20_000;

/// An address of loopback on which nobody listens, and which this process has not given out before: for a program that is
/// told its port, or for a server that is down.
///
/// # Panics
///
/// When all of the range are taken.
pub fn unused() -> SocketAddr {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    // Processes that run at once begin at different ports.
    let first = std::process::id().wrapping_mul(97);
    for _ in 0..count {
        let next = first.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % count;
        let next = u16::try_from(next).expect("the range is smaller");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORTS.start + next));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("every port from {} to {} is taken", PORTS.start, PORTS.end);
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs};

    use super::*;

    #[test]
    fn ports_are_given_once_and_are_not_those_of_outgoing_connections() {
        let taken: Vec<_> = (0..20)
            .map(|_| TcpListener::bind(unused()).unwrap())
            .collect();
        let mut given: HashSet<_> = taken
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        assert!((0..200).all(|_| given.insert(unused())));
        let Ok(range) = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range") else {
            return;
        };
        let lowest: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(lowest < PORTS.end || given.iter().all(|address| address.port() < lowest));
    }
}
