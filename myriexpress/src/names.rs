//! Names of hosts and boards in MX's syntax.
//!
//! ```text
//!   "server7:1"  --nic_id-->   64 bits   --hostname-->      "server7:1"
//!       board 1  --of_board-->           --board_number-->  1           on this machine
//! ```
//!
//! Out of scope: the resolver, the peers file (`mx_sys::nic`).

use crate::error::{Code, Error};
use mx_proto::NicId;
use mx_sys::nic;

/// Resolves `host` or `host:board` to a NIC id; may use the network.
pub fn nic_id(name: &str) -> Result<NicId, Error> {
    nic::resolve_mx_name(name)
        .map(|found| found.nic)
        .map_err(|error| Error::new(Code::HostNotFound, error.to_string()))
}

/// Returns the name of a NIC id as `host:board`, at most [`nic::MX_NAME_MAX`] bytes; fails if nothing is known of the
/// id.
pub fn hostname(nic: NicId) -> Result<String, Error> {
    nic::mx_name(nic).ok_or_else(|| {
        let text = format!("nothing is known of NIC {:#018x}", nic.0);
        Error::new(Code::HostNotFound, text)
    })
}

/// Returns the NIC id of a board of this machine; fails if there is no such board.
pub fn of_board(board: u32) -> Result<NicId, Error> {
    nic::own_nic(Some(board)).map_err(|error| Error::new(Code::BoardUnknown, error.to_string()))
}

/// Returns the number of this machine's board with that NIC id; fails if it belongs to another machine.
pub fn board_number(nic: NicId) -> Result<u32, Error> {
    nic::board_number(nic).ok_or_else(|| {
        let text = format!("NIC {:#018x} is none of this host's", nic.0);
        Error::new(Code::NicNotFound, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn board_0_goes_through_all_four_forms_and_back() {
        let nic = of_board(0).unwrap();
        assert_eq!(board_number(nic).unwrap(), 0);
        let name = hostname(nic).unwrap();
        assert!(name.ends_with(":0"), "{name}");
        assert!(name.len() < crate::abi::MX_MAX_HOSTNAME_LEN);
        for name in [name.as_str(), "localhost", "localhost:0"] {
            assert_eq!(nic_id(name).unwrap(), nic, "{name}");
        }
    }

    #[test]
    fn what_is_not_known_has_its_code() {
        assert_eq!(nic_id("").unwrap_err().code(), Code::HostNotFound);
        assert_eq!(
            nic_id("localhost:4000000000").unwrap_err().code(),
            Code::HostNotFound
        );
        assert_eq!(of_board(9999).unwrap_err().code(), Code::BoardUnknown);
        for nic in [NicId(0), NicId(u64::MAX)] {
            assert_eq!(hostname(nic).unwrap_err().code(), Code::HostNotFound);
            assert_eq!(board_number(nic).unwrap_err().code(), Code::NicNotFound);
        }
    }
}
