//! Networks: `cidr`, `isCIDR` and the properties of a network.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/cidr.go` and `cost.go`.

use std::any::Any;

use super::addresses::{Network, find_ip, ip_text, parse_network};
use super::go_text::{fifth, fixed, tenth, text};
use super::ip::{IpValue, address, ip_type};
use super::opaque_types::{opaque, unconvertible};
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelOpaque, CelResult, CelValue};

/// The name of the CEL type of networks.
const NET_CIDR: &str = "net.CIDR";

/// The functions of networks. They need [`IpLibrary`](super::ip::IpLibrary), which declares the type of addresses.
#[derive(Clone, Copy, Debug)]
pub struct CidrLibrary;

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CidrValue(Network);

impl CelOpaque for CidrValue {
    fn type_name(&self) -> &str {
        NET_CIDR
    }

    fn go_type(&self) -> &'static str {
        "cel.CIDR"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn CelOpaque) -> Option<bool> {
        Some(other.as_any().downcast_ref() == Some(self))
    }

    fn cost_size(&self) -> u64 {
        u64::from(self.0.bits).div_ceil(8)
    }

    fn conversion_error(&self) -> Option<String> {
        Some(unconvertible("netip.Prefix", self))
    }

    fn print(&self) -> String {
        network_text(&self.0)
    }
}

fn cidr_type() -> CelType {
    CelType::opaque(NET_CIDR)
}

fn network_text(network: &Network) -> String {
    format!("{}/{}", ip_text(network.address), network.bits)
}

impl CelLibrary for CidrLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        to.type_name(cidr_type());
        let parsing = |args: &[CelValue<'_>], _: &CelValue<'_>| Some(tenth(args[0].cost_size()));
        let (bool, text) = (CelType::Bool, CelType::String);
        to.function(
            CelFunctionDecl::new("cidr")
                .cost(parsing)
                .overload(CelOverload::global(
                    "string_to_cidr",
                    [text.clone()],
                    cidr_type(),
                    cidr,
                )),
        );
        to.function(
            CelFunctionDecl::new("isCIDR")
                .cost(parsing)
                .overload(CelOverload::global(
                    "is_cidr",
                    [text.clone()],
                    bool,
                    is_cidr,
                )),
        );
        to.function(CelFunctionDecl::new("string").overload(CelOverload::global(
            "cidr_to_string",
            [cidr_type()],
            text,
            fixed(|args| Ok(network_text(&network(args, 0)?).into())),
        )));
        declare_parts(to);
        declare_contains(to);
    }
}

fn declare_parts(to: &mut CelDeclarations) {
    to.function(
        CelFunctionDecl::new("ip").overload(
            CelOverload::member(
                "cidr_ip",
                [cidr_type()],
                ip_type(),
                fixed(|args| Ok(CelValue::opaque(IpValue(network(args, 0)?.address)))),
            )
            .cost(|_, _| Some(1)),
        ),
    );
    to.function(CelFunctionDecl::new("masked").overload(CelOverload::member(
        "cidr_masked",
        [cidr_type()],
        cidr_type(),
        fixed(|args| Ok(CelValue::opaque(CidrValue(network(args, 0)?.masked())))),
    )));
    to.function(
        CelFunctionDecl::new("prefixLength").overload(CelOverload::member(
            "cidr_prefix_length",
            [cidr_type()],
            CelType::Int,
            fixed(|args| Ok(i64::from(network(args, 0)?.bits).into())),
        )),
    );
}

fn declare_contains(to: &mut CelDeclarations) {
    let bool = CelType::Bool;
    to.function(
        CelFunctionDecl::new("containsIP")
            .cost(|args, _| Some(fifth(args[0].cost_size())))
            .overload(
                CelOverload::member(
                    "cidr_contains_ip_string",
                    [cidr_type(), CelType::String],
                    bool.clone(),
                    contains_ip_text,
                )
                .cost(|args, _| Some(fifth(args[0].cost_size()) + tenth(args[1].cost_size()))),
            )
            .overload(CelOverload::member(
                "cidr_contains_ip_ip",
                [cidr_type(), ip_type()],
                bool.clone(),
                fixed(|args| Ok(network(args, 0)?.contains(address(args, 1)?).into())),
            )),
    );
    to.function(
        CelFunctionDecl::new("containsCIDR")
            .cost(|args, _| Some(containing(args)))
            .overload(
                CelOverload::member(
                    "cidr_contains_cidr_string",
                    [cidr_type(), CelType::String],
                    bool.clone(),
                    contains_network_text,
                )
                .cost(|args, _| Some(containing(args) + tenth(args[1].cost_size()))),
            )
            .overload(CelOverload::member(
                "cidr_contains_cidr",
                [cidr_type(), cidr_type()],
                bool,
                fixed(|args| {
                    Ok(network(args, 0)?
                        .contains_network(&network(args, 1)?)
                        .into())
                }),
            )),
    );
}

/// The cost of testing whether a network contains another one.
fn containing(args: &[CelValue<'_>]) -> u64 {
    let size = args[0].cost_size();
    fifth(size) + tenth(size) + 1
}

fn network(args: &[CelValue<'_>], at: usize) -> Result<Network, CelError> {
    opaque(args, at).map(|value: &CidrValue| value.0)
}

/// The error for text that is not a network; `why` is the reason.
fn refusal(why: &str) -> CelError {
    CelError::new(format!(
        "network address parse error during conversion from string: {why}"
    ))
}

fn cidr<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let network = parse_network(text(args, 0)?).map_err(|why| refusal(&why))?;
    Ok(CelValue::opaque(CidrValue(network)))
}

fn is_cidr<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(parse_network(text(args, 0)?).is_ok().into())
}

/// As in the original, the error for an invalid address does not say what is wrong with it.
fn contains_ip_text<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let network = network(args, 0)?;
    let address = find_ip(text(args, 1)?).ok_or_else(CelError::no_such_overload)?;
    Ok(network.contains(address).into())
}

fn contains_network_text<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let other = parse_network(text(args, 1)?).map_err(|why| refusal(&why))?;
    Ok(network(args, 0)?.contains_network(&other).into())
}
