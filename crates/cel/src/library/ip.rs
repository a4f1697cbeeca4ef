//! IP addresses: `ip`, `isIP`, `ip.isCanonical` and the properties of an address.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/ip.go` and `cost.go`.

use std::any::Any;
use std::net::IpAddr;

use super::addresses::{find_ip, ip_text, parse_ip};
use super::go_text::{fifth, fixed, tenth, text};
use super::opaque_types::{opaque, unconvertible};
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::types::CelType;
use crate::value::{CelError, CelOpaque, CelResult, CelValue, CelWork};

/// The name of the CEL type of IP addresses.
const NET_IP: &str = "net.IP";

/// The functions of IP addresses.
#[derive(Clone, Copy, Debug)]
pub struct IpLibrary;

/// An IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IpValue(pub(super) IpAddr);

impl CelOpaque for IpValue {
    fn type_name(&self) -> &str {
        NET_IP
    }

    fn go_type(&self) -> &'static str {
        "cel.IP"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn CelOpaque) -> Option<bool> {
        Some(other.as_any().downcast_ref() == Some(self))
    }

    fn cost_size(&self) -> u64 {
        if self.0.is_ipv4() { 4 } else { 16 }
    }

    fn conversion_error(&self) -> Option<String> {
        Some(unconvertible("netip.Addr", self))
    }

    fn print(&self) -> String {
        ip_text(self.0)
    }
}

/// The CEL type of IP addresses.
pub(super) fn ip_type() -> CelType {
    CelType::opaque(NET_IP)
}

impl CelLibrary for IpLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        to.type_name(ip_type());
        let parsing = |args: &[CelValue<'_>], _: &CelValue<'_>| Some(tenth(args[0].cost_size()));
        to.function(
            CelFunctionDecl::new("ip")
                .cost(parsing)
                .overload(CelOverload::global(
                    "string_to_ip",
                    [CelType::String],
                    ip_type(),
                    Metered(ip),
                )),
        );
        to.function(
            CelFunctionDecl::new("isIP")
                .cost(parsing)
                .overload(CelOverload::global(
                    "is_ip",
                    [CelType::String],
                    CelType::Bool,
                    is_ip,
                )),
        );
        to.function(
            CelFunctionDecl::new("ip.isCanonical")
                .cost(|args, _| Some(fifth(args[0].cost_size())))
                .overload(CelOverload::global(
                    "ip_is_canonical",
                    [CelType::String],
                    CelType::Bool,
                    Metered(is_canonical),
                )),
        );
        to.function(CelFunctionDecl::new("string").overload(CelOverload::global(
            "ip_to_string",
            [ip_type()],
            CelType::String,
            fixed(|args| Ok(ip_text(address(args, 0)?).into())),
        )));
        to.function(CelFunctionDecl::new("family").overload(CelOverload::member(
            "ip_family",
            [ip_type()],
            CelType::Int,
            fixed(|args| Ok(if address(args, 0)?.is_ipv4() { 4 } else { 6 }.into())),
        )));
        declare_properties(to);
    }
}

type AddressTest = fn(IpAddr) -> bool;

fn declare_properties(to: &mut CelDeclarations) {
    let properties: [(&str, &str, AddressTest); 5] = [
        ("isUnspecified", "ip_is_unspecified", |of| {
            of.is_unspecified()
        }),
        ("isLoopback", "ip_is_loopback", |of| of.is_loopback()),
        (
            "isLinkLocalMulticast",
            "ip_is_link_local_multicast",
            is_link_local_multicast,
        ),
        (
            "isLinkLocalUnicast",
            "ip_is_link_local_unicast",
            is_link_local_unicast,
        ),
        ("isGlobalUnicast", "ip_is_global_unicast", is_global_unicast),
    ];
    for (name, id, has_property) in properties {
        to.function(CelFunctionDecl::new(name).overload(CelOverload::member(
            id,
            [ip_type()],
            CelType::Bool,
            fixed(move |args| Ok(has_property(address(args, 0)?).into())),
        )));
    }
}

/// The argument number `at`, from 0, if it is an address; otherwise `no such overload`.
pub(super) fn address(args: &[CelValue<'_>], at: usize) -> Result<IpAddr, CelError> {
    opaque(args, at).map(|value: &IpValue| value.0)
}

fn ip<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let address = parse_ip(text(args, 0)?, work)?;
    Ok(CelValue::opaque(IpValue(address)))
}

fn is_ip<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(find_ip(text(args, 0)?).is_some().into())
}

fn is_canonical<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let text = text(args, 0)?;
    let address = parse_ip(text, work)?;
    Ok((ip_text(address) == text).into())
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(of) => of.octets()[..3] == [224, 0, 0],
        IpAddr::V6(of) => of.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(of) => of.is_link_local(),
        IpAddr::V6(of) => of.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// As in Go's `net/netip`, private and unique local addresses are global unicast addresses, too.
fn is_global_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(of) if of.is_broadcast());
    !address.is_unspecified()
        && !broadcast
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}
