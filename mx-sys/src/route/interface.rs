//! The interface of this machine for ports that have to choose one.
//!
//! ```text
//!   asked for                      used
//!     to listen there only         that address (bind)
//!     an address in the name       that interface, as soon as this machine has it
//!     a board                      the current n-th interface
//!     nothing                      no particular one: the first usable in their order
//! ```
//!
//! Out of scope: listening.

use super::open::OpenOptions;
use crate::nic;
use mx_port_rdm::Device;
use std::net::IpAddr;

/// The interface asked for, by address or number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Interface {
    only: Option<IpAddr>,
    address: Option<IpAddr>,
    board: Option<u32>,
}

impl Interface {
    pub(super) fn asked_for(options: &OpenOptions) -> Self {
        Self {
            only: options.tcp_bind,
            address: options.address,
            board: options.board,
        }
    }

    /// Returns the address asked for; `None` if none was. For an address that this machine does not have (yet), that of
    /// the board given with it.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let named = self.address.filter(|address| nic::has(*address));
        let of_board = || nic::board_address(self.board?);
        self.only.or(named).or_else(of_board)
    }

    /// Returns the device for a port over a fabric. Options that name one take precedence.
    pub(super) fn device(&self, options: &Device) -> Device {
        match options.bind {
            Some(_) => options.clone(),
            None => Device {
                bind: self.address(),
                order: nic::board_addresses(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_says_most_about_an_interface_decides() {
        let first = nic::boards()[0].1.address;
        let elsewhere = ip("192.0.2.9");
        for (only, address, board, expected) in [
            (None, None, None, None),
            (None, None, Some(0), Some(first)),
            (None, None, Some(700), None),
            (None, Some(ip("127.0.0.3")), Some(0), Some(ip("127.0.0.3"))),
            // An address that this machine does not have yet.
            (None, Some(elsewhere), Some(0), Some(first)),
            (None, Some(elsewhere), None, None),
            (
                Some(ip("127.0.0.2")),
                Some(first),
                Some(0),
                Some(ip("127.0.0.2")),
            ),
        ] {
            let interface = Interface {
                only,
                address,
                board,
            };
            assert_eq!(interface.address(), expected, "{interface:?}");
            let device = interface.device(&Device::default());
            assert_eq!((device.bind, device.order[0]), (expected, first));
            let told = Device::only(elsewhere);
            assert_eq!(interface.device(&told), told);
        }
    }
}
