//! IP addresses and networks as Go's `net/netip` parses and prints them, with the restrictions of Kubernetes: no zones,
//! and no IPv4-mapped IPv6 addresses.
//!
//! Source: Go `net/netip`; Kubernetes `apiserver/pkg/cel/library/ip.go` and `cidr.go`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairgate_gotext::Quoted;

use crate::value::{CelError, CelWork, quote_in_steps, work_of_bytes};

/// Parses an address.
///
/// # Errors
///
/// The error text of Kubernetes, which includes Go's. Both quote the whole text, which takes steps.
pub(super) fn parse_ip(text: &str, work: &mut CelWork<'_>) -> Result<IpAddr, CelError> {
    let (address, zone) = match parse_addr(text) {
        Ok(parsed) => parsed,
        Err(why) => return Err(CelError::new(why.of_conversion(work)?)),
    };
    if zone {
        let text = Quoted(text);
        let message = format!("IP address {text} with zone value is not allowed");
        return Err(CelError::new(message));
    }
    not_mapped(address, text).map_err(CelError::new)?;
    Ok(address)
}

/// The address, without an error that would quote the whole text.
pub(super) fn find_ip(text: &str) -> Option<IpAddr> {
    let (address, zone) = parse_addr(text).ok()?;
    (!zone && !is_mapped(address)).then_some(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(of) if of.to_ipv4_mapped().is_some())
}

fn not_mapped(address: IpAddr, text: &str) -> Result<(), String> {
    if is_mapped(address) {
        let text = Quoted(text);
        return Err(format!("IPv4-mapped IPv6 address {text} is not allowed"));
    }
    Ok(())
}

/// The error of Go's `ParseAddr`, which is written only where somebody reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressError<'t> {
    text: &'t str,
    why: &'static str,
    /// The part that is wrong, if the error names it.
    at: &'t str,
}

impl AddressError<'_> {
    /// Go's text in parts, with the whole text and the part that is wrong as they are quoted.
    fn parts<'p>(&self, text: &'p str, at: &'p str) -> [&'p str; 7] {
        let [before, after] = if self.at.is_empty() {
            ["", ""]
        } else {
            [" (at ", ")"]
        };
        let at = if self.at.is_empty() { "" } else { at };
        ["ParseAddr(", text, "): ", self.why, before, at, after]
    }

    /// The text of Kubernetes where a string is converted. Both quote the whole string, which may be long.
    fn of_conversion(&self, work: &mut CelWork<'_>) -> Result<String, CelError> {
        let text = quote_in_steps(self.text, work)?;
        let at = quote_in_steps(self.at, work)?;
        let before = [
            "IP Address ",
            &text,
            " parse error during conversion from string: ",
        ];
        let parts = self.parts(&text, &at);
        let parts = || before.iter().chain(&parts);
        let mut message = String::with_capacity(parts().map(|part| part.len()).sum());
        for part in parts() {
            message.push_str(part);
            work.burn(work_of_bytes(part.len()))?;
        }
        Ok(message)
    }
}

impl fmt::Display for AddressError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, at) = (Quoted(self.text).to_string(), Quoted(self.at).to_string());
        let mut parts = self.parts(&text, &at).into_iter();
        parts.try_for_each(|part| f.write_str(part))
    }
}

/// Go's `ParseAddr`: the address, and whether it has a zone.
pub(super) fn parse_addr(text: &str) -> Result<(IpAddr, bool), AddressError<'_>> {
    match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => Ok((parse_ipv4(text)?.into(), false)),
        Some(b':') => parse_ipv6(text),
        Some(_) => Err(refusal(text, "missing IPv6 address", "")),
        None => Err(refusal(text, "unable to parse IP", "")),
    }
}

fn refusal<'t>(text: &'t str, why: &'static str, at: &'t str) -> AddressError<'t> {
    AddressError { text, why, at }
}

fn parse_ipv4(text: &str) -> Result<Ipv4Addr, AddressError<'_>> {
    ipv4_fields(text, text)
}

/// Parses the four numbers of `fields`, which is `whole` or its end. Errors quote `whole`.
fn ipv4_fields<'t>(whole: &'t str, fields: &'t str) -> Result<Ipv4Addr, AddressError<'t>> {
    let wrong = |why: &'static str, at: &'t str| Err(refusal(whole, why, at));
    let mut octets = [0_u8; 4];
    let (mut value, mut done, mut digits) = (0_u32, 0, 0);
    for (at, byte) in fields.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return wrong("IPv4 field has octet with leading zero", "");
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return wrong("IPv4 field has value >255", "");
                }
            }
            b'.' => {
                let last = at + 1 == fields.len();
                if at == 0 || last || fields.as_bytes()[at - 1] == b'.' {
                    return wrong("IPv4 field must have at least one digit", &fields[at..]);
                }
                if done == 3 {
                    return wrong("IPv4 address too long", "");
                }
                octets[done] = u8::try_from(value).unwrap_or(u8::MAX);
                done += 1;
                (value, digits) = (0, 0);
            }
            _ => return wrong("unexpected character", tail(fields, at)),
        }
    }
    if done < 3 {
        return wrong("IPv4 address too short", "");
    }
    octets[3] = u8::try_from(value).unwrap_or(u8::MAX);
    Ok(octets.into())
}

/// The text from the byte `at` on, or from the next character on if `at` is inside of one.
fn tail(text: &str, at: usize) -> &str {
    (at..=text.len())
        .find_map(|at| text.get(at..))
        .unwrap_or_default()
}

/// Parses an IPv6 address: the address, and whether it has a zone.
fn parse_ipv6(text: &str) -> Result<(IpAddr, bool), AddressError<'_>> {
    let (address, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(refusal(text, "zone must be a non-empty string", "")),
        Some((address, _)) => (address, true),
        None => (text, false),
    };
    let mut bytes = [0_u8; 16];
    let mut ellipsis = None;
    let mut rest = address;
    let mut at = 0;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok((Ipv6Addr::UNSPECIFIED.into(), zone));
        }
    }
    while at < 16 {
        let (value, digits) = hex_field(text, rest)?;
        if rest.as_bytes().get(digits) == Some(&b'.') {
            if ellipsis.is_none() && at != 12 {
                let why = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err(refusal(text, why, rest));
            }
            if at + 4 > 16 {
                let why = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err(refusal(text, why, rest));
            }
            // Go has another error for a zone after such an address. Kubernetes refuses all zones anyway.
            let octets = ipv4_fields(text, rest)?.octets();
            bytes[at..at + 4].copy_from_slice(&octets);
            at += 4;
            rest = "";
            break;
        }
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        at += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(refusal(text, "unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(refusal(
                text,
                "colon must be followed by more characters",
                rest,
            ));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(refusal(text, "multiple :: in address", rest));
            }
            ellipsis = Some(at);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(refusal(text, "trailing garbage after address", rest));
    }
    expand(text, bytes, at, ellipsis).map(|address| (address.into(), zone))
}

/// Parses the hexadecimal number at the start of `rest`: its value, and the number of its digits.
fn hex_field<'t>(whole: &'t str, rest: &'t str) -> Result<(u16, usize), AddressError<'t>> {
    let mut value = 0_u32;
    let mut digits = 0;
    for c in rest.chars() {
        let Some(digit) = c.to_digit(16) else { break };
        value = value * 16 + digit;
        if digits > 3 {
            return Err(refusal(
                whole,
                "each group must have 4 or less digits",
                rest,
            ));
        }
        if value > u32::from(u16::MAX) {
            return Err(refusal(whole, "IPv6 field has value >=2^16", rest));
        }
        digits += 1;
    }
    if digits == 0 {
        let why = "each colon-separated field must have at least one digit";
        return Err(refusal(whole, why, rest));
    }
    Ok((u16::try_from(value).unwrap_or(u16::MAX), digits))
}

/// Fills in the zeros that `::` stands for. `filled` is the number of bytes that were parsed, `ellipsis` the position
/// of `::` among them.
fn expand(
    text: &str,
    mut bytes: [u8; 16],
    filled: usize,
    ellipsis: Option<usize>,
) -> Result<Ipv6Addr, AddressError<'_>> {
    match ellipsis {
        None if filled < 16 => return Err(refusal(text, "address string too short", "")),
        Some(_) if filled == 16 => {
            let why = "the :: must expand to at least one field of zeros";
            return Err(refusal(text, why, ""));
        }
        Some(from) => {
            let moved = filled - from;
            bytes.copy_within(from..filled, 16 - moved);
            bytes[from..16 - moved].fill(0);
        }
        None => {}
    }
    Ok(bytes.into())
}

/// A network: an address, whose host bits may be set, and the length of its prefix in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) address: IpAddr,
    pub(super) bits: u8,
}

/// Parses a network in CIDR notation.
///
/// # Errors
///
/// The error text of Kubernetes, which includes Go's.
pub(super) fn parse_network(text: &str) -> Result<Network, String> {
    let wrong = |why: &str| {
        let prefix = "network address parse error during conversion from string: ";
        let quoted = Quoted(text);
        Err(format!("{prefix}netip.ParsePrefix({quoted}): {why}"))
    };
    let Some(slash) = text.rfind('/') else {
        return wrong("no '/'");
    };
    let (address, length) = (&text[..slash], &text[slash + 1..]);
    let (address, zone) = match parse_addr(address) {
        Ok(parsed) => parsed,
        Err(why) => return wrong(&why.to_string()),
    };
    if zone {
        return wrong("IPv6 zones cannot be present in a prefix");
    }
    let leading = length.len() > 1 && !matches!(length.as_bytes()[0], b'1'..=b'9');
    let Some(bits) = length.parse::<i64>().ok().filter(|_| !leading) else {
        return wrong(&format!("bad bits after slash: {}", Quoted(length)));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    if !(0..=most).contains(&bits) {
        return wrong("prefix length out of range");
    }
    not_mapped(address, text)?;
    let bits = u8::try_from(bits).unwrap_or(u8::MAX);
    Ok(Network { address, bits })
}

impl Network {
    fn width(&self) -> u32 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    fn number(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(of) => u128::from(of.to_bits()),
            IpAddr::V6(of) => of.to_bits(),
        }
    }

    /// The first `bits` bits of `address`, which must be of the same family as the network.
    fn prefix(&self, address: IpAddr, bits: u8) -> u128 {
        let dropped = self.width() - u32::from(bits);
        Self::number(address).checked_shr(dropped).unwrap_or(0)
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && self.prefix(self.address, self.bits) == self.prefix(address, self.bits)
    }

    pub(super) fn contains_network(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    /// The same network with the host bits cleared.
    pub(super) fn masked(&self) -> Self {
        let dropped = self.width() - u32::from(self.bits);
        let kept = Self::number(self.address)
            .checked_shr(dropped)
            .and_then(|of| of.checked_shl(dropped))
            .unwrap_or(0);
        let address = if self.address.is_ipv4() {
            IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(kept).unwrap_or(0)))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(kept))
        };
        let bits = self.bits;
        Self { address, bits }
    }
}

/// The text of an address as Go prints it.
pub(super) fn ip_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(of) => of.to_string(),
        // Never in dotted form: Go prints only IPv4-mapped addresses so, and these are refused.
        IpAddr::V6(of) => ipv6_text(of),
    }
}

fn ipv6_text(address: Ipv6Addr) -> String {
    let fields = address.segments();
    // The longest run of at least two zeros is left out; of several longest ones, the first.
    let mut longest = 0..0;
    let mut from = 0;
    while from < fields.len() {
        let zeros = fields[from..]
            .iter()
            .take_while(|field| **field == 0)
            .count();
        if zeros >= 2 && zeros > longest.len() {
            longest = from..from + zeros;
        }
        from += zeros.max(1);
    }
    let join = |fields: &[u16]| {
        let fields: Vec<_> = fields.iter().map(|field| format!("{field:x}")).collect();
        fields.join(":")
    };
    if longest.is_empty() {
        return join(&fields);
    }
    format!(
        "{}::{}",
        join(&fields[..longest.start]),
        join(&fields[longest.end..])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_printed_as_in_go() {
        let text = |of: &str| ip_text(find_ip(of).unwrap());
        assert_eq!(text("1:0:0:2:0:0:0:3"), "1:0:0:2::3");
        assert_eq!(text("::1.2.3.4"), "::102:304");
        assert_eq!(text("1:0:2:3:4:5:6:7"), "1:0:2:3:4:5:6:7");
        assert_eq!(text("0:0:0:0:0:0:0:0"), "::");
    }

    #[test]
    fn networks_of_different_families_do_not_contain_each_other() {
        let network = |of: &str| parse_network(of).unwrap();
        assert!(!network("0.0.0.0/0").contains(find_ip("::1").unwrap()));
        assert!(network("10.0.0.0/8").contains_network(&network("10.0.0.0/8")));
        assert!(!network("10.0.0.0/9").contains_network(&network("10.0.0.0/8")));
        assert_eq!(network("::1/0").masked(), network("::/0"));
    }
}
