//! On whose account a lookup is.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

/// Who pays for a lookup: a path of names, from whom most share to the *line* within an account, such as a connection of an
/// address. The names before the line are those of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupPayer {
    path: Arc<[Arc<str>]>,
}

impl LookupPayer {
    /// An account of one line.
    pub(crate) fn of(account: &str) -> Self {
        Self {
            path: [account.into(), "".into()].into(),
        }
    }

    /// The account of a peer's address, which is one of its network, and whose lines are connections. An IPv4 address is one of its
    /// /24. A host with IPv6 has a /64, which is the account; a site has at least a /56 and often a /48, which is the network.
    pub(crate) fn peer(remote: SocketAddr) -> Self {
        let (network, address) = network_and_address(remote);
        let path = [
            network.to_string().into(),
            address.to_string().into(),
            remote.port().to_string().into(),
        ];
        Self { path: path.into() }
    }

    /// All names, that of the line last.
    pub(crate) fn path(&self) -> &[Arc<str>] {
        &self.path
    }

    /// The names of the account.
    pub(crate) fn account(&self) -> &[Arc<str>] {
        &self.path[..self.path.len() - 1]
    }
}

/// The network of a peer, and what counts as its address: an IPv6 host may choose the rest.
pub(crate) fn network_and_address(remote: SocketAddr) -> (IpAddr, IpAddr) {
    let prefix = |address: Ipv6Addr, length: u32| {
        let rest = u128::BITS - length;
        IpAddr::from(Ipv6Addr::from_bits(address.to_bits() >> rest << rest))
    };
    match remote.ip().to_canonical() {
        IpAddr::V6(address) => (prefix(address, 48), prefix(address, 64)),
        IpAddr::V4(address) => {
            let network = Ipv4Addr::from_bits(address.to_bits() & !0xff);
            (network.into(), address.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_account_however_many_addresses_of_its_network_it_uses() {
        let payer = |address: &str| LookupPayer::peer(address.parse().unwrap());
        let account = |address| payer(address).account().to_vec();
        assert_eq!(account("[2001:db8::1]:1"), account("[2001:db8::ffff:1]:2"));
        assert_ne!(account("[2001:db8::1]:1"), account("[2001:db8:0:1::1]:1"));
        assert_eq!(account("[::ffff:10.0.0.1]:1"), account("10.0.0.1:2"));
        let network = |address| Arc::clone(&payer(address).path()[0]);
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8:0:9::1]:1"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:1::1]:1"));
        assert_eq!(network("10.0.0.1:1"), network("10.0.0.200:1"));
        assert_ne!(network("10.0.0.1:1"), network("10.0.1.1:1"));
    }
}
