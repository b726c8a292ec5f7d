//! Switches an interface's offloads off, so that what crosses it are the frames a cable would carry.
//!
//! ```text
//!   with offloads      one "frame" of 64 KiB, its checksum left to hardware that is not there
//!   without            44 frames of 1500 bytes, each with its checksum
//! ```
//!
//! Done by ethtool's ioctl, because many machines have no ethtool.
//!
//! Owns: nothing.
//! Out of scope: the link.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::AsRawFd;

/// `linux/ethtool.h`'s commands that set one offload each. What depends on another comes before it.
const OFFLOADS: [u32; 6] = [
    0x2c, // generic receive offload
    0x24, // generic segmentation
    0x1f, // TCP segmentation
    0x19, // scatter-gather, on which segmentation depends
    0x17, // checksums of what is sent, on which scatter-gather does
    0x15, // checksums of what is received
];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

nix::ioctl_write_ptr_bad!(
    /// Asks a network driver something; `ifr_data` points at a structure that says what.
    siocethtool,
    libc::SIOCETHTOOL,
    libc::ifreq
);

/// Switches all of them off. What an interface cannot do, or cannot do without, stays as it is.
/// `Err`: there is no such interface, or it may not be changed.
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
