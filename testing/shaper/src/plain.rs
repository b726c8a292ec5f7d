//! Offloads of an interface, switched off, so that its frames are those of a cable.
//!
//! ```text
//!   with offloads      one "frame" of 64 KiB, its checksum left to hardware that is not there
//!   without            44 frames of 1500 bytes, each with its checksum
//! ```
//!
//! Uses ethtool's ioctl, because many machines have no ethtool.
//!
//! Owns: nothing.
//! Out of scope: the link.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::AsRawFd;

/// Commands of `linux/ethtool.h` that set one offload each. Dependent offloads come first.
const OFFLOADS: [u32; 6] = [
    0x2c, // generic receive offload
    0x24, // generic segmentation
    0x1f, // TCP segmentation
    0x19, // scatter-gather, which segmentation needs
    0x17, // checksums of sent packets, which scatter-gather needs
    0x15, // checksums of received packets
];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

nix::ioctl_write_ptr_bad!(
    /// Sends a request to a network driver; `ifr_data` points to its structure.
    siocethtool,
    libc::SIOCETHTOOL,
    libc::ifreq
);

/// Switches all offloads off. Those that the interface does not have, or cannot do without, stay as
/// they are. Returns an error if there is no such interface, or if it may not be changed.
pub(crate) fn make_plain(interface: &str) -> Result<(), Errno> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    // The last byte stays 0.
    if interface.len() >= name.len() {
        return Err(Errno::ENODEV);
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    let asked = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    for command in OFFLOADS {
        let mut value = Value { command, data: 0 };
        let request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: (&raw mut value).cast(),
            },
        };
        // SAFETY: `request` is a whole ifreq with a terminated name; its data points at an
        // ethtool_value, what every one of these commands takes, and both live during the call.
        match unsafe { siocethtool(asked.as_raw_fd(), &raw const request) } {
            Ok(_) | Err(Errno::EOPNOTSUPP | Errno::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
