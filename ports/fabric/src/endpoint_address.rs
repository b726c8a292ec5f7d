//! Endpoint addresses: all that a peer needs to reach an endpoint over a fabric.
//!
//! ```text
//!  0         4         6      7      8            10      12         16
//!  +---------+---------+------+------+------------+-------+----------+
//!  | "MXrc"  | version | name |  0   | address    |   0   | format   |
//!  |         | u16     | len  |      | len u16    |       | u32      |
//!  +---------+---------+------+------+------------+-------+----------+
//!  | cookie u64                 | link u32                           |
//!  +----------------------------+------------------------------------+
//!  | provider's name (1 to 64)  | address in that format (1 to 256)  |
//!  +----------------------------+------------------------------------+   little endian
//! ```
//!
//! Endpoint addresses come from any peer with a session, so nothing in them is trusted but their lengths, once checked.
//!
//! Owns: the bytes of endpoint addresses.
//! Out of scope: libfabric, links.

/// Longest provider name in bytes, such as `verbs;ofi_rxm`.
pub const PROVIDER_MAX: usize = 64;

/// Longest address in bytes. The longest known, of psm and cxi, have some 50 bytes; addresses in text form are shorter
/// than this too.
pub const ADDRESS_MAX: usize = 256;

/// Version of this layout and of the frames over the fabric. Peers with different versions fall back to TCP.
pub const VERSION: u16 = 4;

/// Longest endpoint address in bytes.
pub const ENDPOINT_ADDRESS_MAX: usize = FIXED + PROVIDER_MAX + ADDRESS_MAX;

const MAGIC: [u8; 4] = *b"MXrc";
const FIXED: usize = 28;

/// Address of one endpoint on its fabric, and the cookie of one link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointAddress {
    /// Exact name of the provider, which must be equal on both sides.
    pub provider: String,
    /// libfabric's number for the format of `address`.
    pub format: u32,
    /// Address of the sender's endpoint, from `fi_getname`.
    pub address: Vec<u8>,
    /// Sender's number for the link, which frames to it carry; 0 for datagrams, whose links are numbered otherwise.
    pub link: u32,
    /// Random number of the link; frames without it are dropped. 0 for datagrams.
    pub cookie: u64,
}

impl EndpointAddress {
    /// Encodes the endpoint address. Parts beyond the limits are truncated, so that the peer would not find the
    /// endpoint; our own never exceed the limits.
    pub fn emit(&self) -> Vec<u8> {
        let provider = cut(self.provider.as_bytes(), PROVIDER_MAX);
        let address = cut(&self.address, ADDRESS_MAX);
        let mut bytes = Vec::with_capacity(FIXED + provider.len() + address.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        // Both lengths are bounded above.
        bytes.extend_from_slice(&[provider.len() as u8, 0]);
        bytes.extend_from_slice(&(address.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.extend_from_slice(&self.cookie.to_le_bytes());
        bytes.extend_from_slice(&self.link.to_le_bytes());
        bytes.extend_from_slice(provider);
        bytes.extend_from_slice(address);
        bytes
    }

    /// Returns whether the sender uses this provider and address format.
    pub fn is_on(&self, provider: &str, format: u32) -> bool {
        (&*self.provider, self.format) == (provider, format)
    }

    /// Parses an endpoint address; `None` if the bytes are not one of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        if rest.array::<4>()? != MAGIC || u16::from_le_bytes(rest.array()?) != VERSION {
            return None;
        }
        let [provider_len, _] = rest.array()?;
        let address_len = usize::from(u16::from_le_bytes(rest.array()?));
        let _: [u8; 2] = rest.array()?;
        let format = u32::from_le_bytes(rest.array()?);
        let cookie = u64::from_le_bytes(rest.array()?);
        let link = u32::from_le_bytes(rest.array()?);
        let provider = provider_name(rest.take(provider_len.into())?)?;
        let address = rest.take(address_len)?;
        let whole = rest.0.is_empty() && !provider.is_empty();
        (whole && (1..=ADDRESS_MAX).contains(&address_len)).then(|| Self {
            provider: provider.to_owned(),
            format,
            address: address.to_vec(),
            link,
            cookie,
        })
    }
}

/// Returns a provider's name if it is safe to log: ASCII without blanks, not too long. May be empty.
fn provider_name(bytes: &[u8]) -> Option<&str> {
    let fits = bytes.len() <= PROVIDER_MAX && bytes.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(bytes).ok().filter(|_| fits)
}

fn cut(bytes: &[u8], most: usize) -> &[u8] {
    debug_assert!(bytes.len() <= most, "{} bytes of {most}", bytes.len());
    &bytes[..bytes.len().min(most)]
}

/// Reader of consecutive fields.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint_address() -> EndpointAddress {
        EndpointAddress {
            provider: "verbs;ofi_rxm".to_owned(),
            format: 2,
            address: (0..16).collect(),
            link: 0xffff_fffe,
            cookie: 0x99aa_bbcc_ddee_ff00,
        }
    }

    /// Generates noise (splitmix64).
    fn noise(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn endpoint_address_round_trips_at_every_valid_length() {
        for (provider, address) in [(1, 1), (PROVIDER_MAX, ADDRESS_MAX), (13, 16)] {
            let endpoint_address = EndpointAddress {
                provider: "p".repeat(provider),
                address: vec![7; address],
                ..endpoint_address()
            };
            let bytes = endpoint_address.emit();
            assert!(bytes.len() <= ENDPOINT_ADDRESS_MAX);
            assert_eq!(EndpointAddress::parse(&bytes), Some(endpoint_address));
        }
        // Built by hand: `emit` never produces these.
        let with = |provider: u8, address: u16| {
            let mut bytes = endpoint_address().emit();
            bytes.truncate(FIXED);
            bytes[6] = provider;
            bytes[8..10].copy_from_slice(&address.to_le_bytes());
            bytes.resize(FIXED + usize::from(provider) + usize::from(address), b'x');
            bytes
        };
        assert!(EndpointAddress::parse(&with(64, 256)).is_some());
        for (provider, address) in [(65, 16), (13, 257), (0, 16), (13, 0), (255, 65535)] {
            assert_eq!(
                EndpointAddress::parse(&with(provider, address)),
                None,
                "{provider} {address}"
            );
        }
    }

    #[test]
    fn truncated_or_extended_endpoint_address_is_rejected() {
        let bytes = endpoint_address().emit();
        for n in 0..bytes.len() {
            assert_eq!(EndpointAddress::parse(&bytes[..n]), None, "{n} bytes");
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(EndpointAddress::parse(&longer), None);
    }

    #[test]
    fn other_magic_or_version_is_rejected_and_names_suit_a_log() {
        for (at, value) in [(0, b'm'), (3, b'C'), (4, 1), (5, 1)] {
            let mut bytes = endpoint_address().emit();
            bytes[at] = value;
            assert_eq!(EndpointAddress::parse(&bytes), None, "byte {at}");
        }
        for bad in [0, b'\n', b' ', 0x1b, 0x7f, 0x80, 0xff] {
            let mut bytes = endpoint_address().emit();
            bytes[FIXED + 3] = bad;
            assert_eq!(EndpointAddress::parse(&bytes), None, "{bad:#x} in the name");
        }
    }

    #[test]
    fn damaged_endpoint_addresses_are_parsed_safely() {
        let mut state = 7;
        let good = endpoint_address().emit();
        for round in 0..20_000 {
            let bytes: Vec<u8> = if round % 2 == 0 {
                let len = noise(&mut state) as usize % 400;
                (0..len).map(|_| noise(&mut state) as u8).collect()
            } else {
                let mut bytes = good.clone();
                for _ in 0..1 + round % 3 {
                    let at = noise(&mut state) as usize % bytes.len();
                    bytes[at] = noise(&mut state) as u8;
                }
                bytes
            };
            if let Some(endpoint_address) = EndpointAddress::parse(&bytes) {
                assert_eq!(
                    EndpointAddress::parse(&endpoint_address.emit()),
                    Some(endpoint_address)
                );
            }
        }
    }
}
