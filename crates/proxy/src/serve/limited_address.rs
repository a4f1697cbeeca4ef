//! What is limited as one address of clients.

use std::net::{IpAddr, Ipv6Addr};

/// What is limited as one address: an IPv6 host has a network of 64 bits to choose addresses from.
pub(super) fn limited_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}
