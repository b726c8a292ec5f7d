//! Address vector.
//!
//! ```text
//!   bytes of an endpoint address --> plausible address? --> fi_av_insert --> fi_addr_t --> remove
//!                             no: FI_EINVAL
//! ```
//!
//! Owns: the check of an address before a provider reads it.

use super::{Domain, FabricError, positive};
use libfabric_sys::abi::{
    FI_ADDR_NOTAVAIL, FI_ADDR_STR, FI_EINVAL, FI_EOTHER, FI_SOCKADDR, FI_SOCKADDR_IN,
    FI_SOCKADDR_IN6,
};
use libfabric_sys::calls::{fi_av_insert, fi_av_remove};

impl Domain {
    /// Inserts a peer's address, which may be untrusted, into the address vector and returns the handle that operations
    /// name the peer by. Fails with `FI_EINVAL` if it cannot be an address in the parameters' format.
    pub fn insert(&self, address: &[u8]) -> Result<u64, FabricError> {
        let refuse = |code| Err(self.error("fi_av_insert", code));
        if !is_address(self.terms.address_format, address) {
            return refuse(FI_EINVAL);
        }
        // Providers read as many bytes as their addresses have, or up to a zero byte: never beyond this buffer, which
        // is longer than any address and ends in zeros.
        let mut room = [0_u64; (ADDRESS_MAX + 2 * ADDRESS_SPARE) / 8];
        // SAFETY: the bytes of `room`, for which any value is valid.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), size_of_val(&room))
        };
        bytes[..address.len()].copy_from_slice(address);
        let mut peer = FI_ADDR_NOTAVAIL;
        // SAFETY: an open vector, one address with room to spare, and an output.
        let result = unsafe {
            fi_av_insert(
                self.parts.av.as_ptr(),
                bytes.as_ptr().cast(),
                1,
                &raw mut peer,
                0,
                std::ptr::null_mut(),
            )
        };
        match result {
            1 if peer != FI_ADDR_NOTAVAIL => Ok(peer),
            0 | 1 => refuse(FI_EINVAL),
            code if code < 0 => refuse(positive(code as isize)),
            _ => refuse(FI_EOTHER),
        }
    }

    /// Removes a peer from the address vector, by its handle; there must be no outstanding operations on it. A failure
    /// is only logged.
    pub fn remove(&self, peer: u64) {
        let mut peer = peer;
        // SAFETY: an open vector, and an array of one.
        let result = unsafe { fi_av_remove(self.parts.av.as_ptr(), &raw mut peer, 1, 0) };
        if result != 0 {
            let text = self.parts.library.strerror(result);
            log::debug!("rdm: fi_av_remove of {peer}: {text}");
        }
    }
}

/// Returns whether `address` can be one in this format (`FI_SOCKADDR_IN`, `FI_ADDR_*`): family, length and a port for
/// IP, a sensible length for others. Providers check no more, or abort the process.
pub fn is_address(format: u32, address: &[u8]) -> bool {
    let family = address.first_chunk().copied().map(u16::from_ne_bytes);
    let port = address.get(2..4);
    let is_ip = |wanted: i32, len: usize| {
        address.len() == len
            && family == u16::try_from(wanted).ok()
            && port.is_some_and(|port| port != [0, 0])
    };
    let v4 = || is_ip(libc::AF_INET, size_of::<libc::sockaddr_in>());
    let v6 = || is_ip(libc::AF_INET6, size_of::<libc::sockaddr_in6>());
    match format {
        FI_SOCKADDR_IN => v4(),
        FI_SOCKADDR_IN6 => v6(),
        FI_SOCKADDR => v4() || v6(),
        // `insert` adds the terminating zero byte.
        FI_ADDR_STR => !address.is_empty() && address.len() <= ADDRESS_MAX,
        _ => (1..=ADDRESS_MAX).contains(&address.len()),
    }
}

/// Longest accepted address in bytes; an endpoint address holds no longer one.
const ADDRESS_MAX: usize = 256;

/// Zero bytes after the address.
const ADDRESS_SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use libfabric_sys::abi::{FI_ADDR_CXI, FI_SOCKADDR_IB};

    fn v4(port: u16) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes
    }

    fn v6(port: u16) -> Vec<u8> {
        let mut bytes = vec![0; 28];
        bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes
    }

    #[test]
    fn socket_addresses_have_their_family_length_and_port() {
        assert!(is_address(FI_SOCKADDR_IN, &v4(1)));
        assert!(!is_address(FI_SOCKADDR_IN, &v4(0)));
        assert!(!is_address(FI_SOCKADDR_IN, &v4(1)[..15]));
        assert!(!is_address(FI_SOCKADDR_IN, &v6(1)));
        assert!(!is_address(FI_SOCKADDR_IN, &[]));
        assert!(is_address(FI_SOCKADDR_IN6, &v6(1)));
        assert!(!is_address(FI_SOCKADDR_IN6, &v4(1)));
        assert!(is_address(FI_SOCKADDR, &v4(1)) && is_address(FI_SOCKADDR, &v6(1)));
    }

    #[test]
    fn other_addresses_have_a_length_that_a_endpoint_address_takes() {
        for format in [FI_ADDR_CXI, FI_ADDR_STR, FI_SOCKADDR_IB] {
            assert!(!is_address(format, &[]));
            assert!(is_address(format, &[1]));
            assert!(is_address(format, &[1; 256]));
            assert!(!is_address(format, &[1; 257]));
        }
    }
}
