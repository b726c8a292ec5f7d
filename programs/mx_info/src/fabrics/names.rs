//! Names for libfabric's numbers.
//!
//! ```text
//!   0x0000000000000406  --bits-->  MSG TAGGED RMA        numbers without a name stay numbers
//! ```
//!
//! Owns: the names, without their `FI_` prefixes.

use libfabric_sys::abi;

/// Capabilities that matter to a port.
const CAPS: [(&str, u64); 11] = [
    ("MSG", abi::FI_MSG),
    ("TAGGED", abi::FI_TAGGED),
    ("RMA", abi::FI_RMA),
    ("READ", abi::FI_READ),
    ("WRITE", abi::FI_WRITE),
    ("REMOTE_READ", abi::FI_REMOTE_READ),
    ("REMOTE_WRITE", abi::FI_REMOTE_WRITE),
    ("MULTI_RECV", abi::FI_MULTI_RECV),
    ("DIRECTED_RECV", abi::FI_DIRECTED_RECV),
    ("SOURCE", abi::FI_SOURCE),
    ("ATOMIC", abi::FI_ATOMIC),
];

const MODES: [(&str, u64); 6] = [
    ("CONTEXT", abi::FI_CONTEXT),
    ("CONTEXT2", abi::FI_CONTEXT2),
    ("MSG_PREFIX", abi::FI_MSG_PREFIX),
    ("RX_CQ_DATA", abi::FI_RX_CQ_DATA),
    ("LOCAL_MR", abi::FI_LOCAL_MR),
    ("BUFFERED_RECV", abi::FI_BUFFERED_RECV),
];

const MR_MODES: [(&str, i32); 10] = [
    ("BASIC", abi::FI_MR_BASIC),
    ("SCALABLE", abi::FI_MR_SCALABLE),
    ("LOCAL", abi::FI_MR_LOCAL),
    ("RAW", abi::FI_MR_RAW),
    ("VIRT_ADDR", abi::FI_MR_VIRT_ADDR),
    ("ALLOCATED", abi::FI_MR_ALLOCATED),
    ("PROV_KEY", abi::FI_MR_PROV_KEY),
    ("ENDPOINT", abi::FI_MR_ENDPOINT),
    ("HMEM", abi::FI_MR_HMEM),
    ("MMU_NOTIFY", abi::FI_MR_MMU_NOTIFY),
];

const FORMATS: [(&str, u32); 12] = [
    ("sockaddr", abi::FI_SOCKADDR),
    ("sockaddr_in", abi::FI_SOCKADDR_IN),
    ("sockaddr_in6", abi::FI_SOCKADDR_IN6),
    ("sockaddr_ib", abi::FI_SOCKADDR_IB),
    ("string", abi::FI_ADDR_STR),
    ("psmx", abi::FI_ADDR_PSMX),
    ("psmx2", abi::FI_ADDR_PSMX2),
    ("psmx3", abi::FI_ADDR_PSMX3),
    ("efa", abi::FI_ADDR_EFA),
    ("opx", abi::FI_ADDR_OPX),
    ("cxi", abi::FI_ADDR_CXI),
    ("none", abi::FI_FORMAT_UNSPEC),
];

/// Returns the names of the capabilities in `caps`; others are omitted.
pub(crate) fn caps(caps: u64) -> Vec<&'static str> {
    named(&CAPS, caps).0
}

/// Returns all bits of a mode.
pub(crate) fn modes(mode: u64) -> Vec<String> {
    all(named(&MODES, mode))
}

/// Returns all bits of a registration mode.
pub(crate) fn mr_modes(mode: i32) -> Vec<String> {
    let bits = |mode: i32| u64::from(mode.cast_unsigned());
    let table: Vec<_> = MR_MODES.map(|(name, bit)| (name, bits(bit))).into();
    all(named(&table, bits(mode)))
}

/// Returns the name of an address format.
pub(crate) fn format(format: u32) -> String {
    match FORMATS.iter().find(|(_, number)| *number == format) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("format {format}"),
    }
}

/// Returns the name of an endpoint type.
pub(crate) fn ep_type(ep_type: u32) -> String {
    match ep_type {
        abi::FI_EP_RDM => "RDM".to_owned(),
        abi::FI_EP_MSG => "MSG".to_owned(),
        abi::FI_EP_DGRAM => "DGRAM".to_owned(),
        other => format!("type {other}"),
    }
}

/// Returns the names of the bits, and the bits without one.
fn named(table: &[(&'static str, u64)], bits: u64) -> (Vec<&'static str>, u64) {
    let there = |(_, bit): &&(&str, u64)| bits & *bit == *bit;
    let known = table.iter().fold(0, |known, (_, bit)| known | bit);
    let names = table.iter().filter(there).map(|(name, _)| *name);
    (names.collect(), bits & !known)
}

fn all((names, rest): (Vec<&'static str>, u64)) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_their_names_and_strangers_their_number() {
        assert_eq!(caps(abi::FI_MSG | abi::FI_TAGGED), ["MSG", "TAGGED"]);
        assert_eq!(
            modes(abi::FI_CONTEXT | 1 << 40),
            ["CONTEXT", "0x10000000000"]
        );
        assert_eq!(mr_modes(0), [""; 0]);
        assert_eq!(
            mr_modes(abi::FI_MR_LOCAL | abi::FI_MR_PROV_KEY | 1 << 20),
            ["LOCAL", "PROV_KEY", "0x100000"]
        );
    }

    #[test]
    fn formats_and_types_are_named_or_numbered() {
        assert_eq!(format(abi::FI_SOCKADDR_IN), "sockaddr_in");
        assert_eq!(format(4711), "format 4711");
        assert_eq!(ep_type(abi::FI_EP_RDM), "RDM");
        assert_eq!(ep_type(99), "type 99");
    }
}
