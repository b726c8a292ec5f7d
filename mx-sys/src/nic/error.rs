//! Errors of looking up a machine.
//!
//! ```text
//!   text --> "", "[x]", 0.0.0.0: not a valid name              EmptyHost, BadBrackets, NoHost
//!        --> not found                                         Unknown
//!        --> this machine, but it has no such interface        BadBoard
//!        --> another machine, where it has to be this one      Elsewhere
//! ```
//!
//! Out of scope: codes; the libraries above have their own.

use mx_port_base::interfaces::Interfaces;
use std::fmt;
use std::net::IpAddr;

/// Errors of looking up a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResolveError {
    /// No name at all.
    EmptyHost,
    /// Something in brackets that is not an IPv6 address.
    BadBrackets {
        /// The text.
        host: String,
    },
    /// An address that no host has, such as 0.0.0.0.
    NoHost {
        /// The text.
        host: String,
    },
    /// The resolver does not know the name.
    Unknown {
        /// The name.
        host: String,
        /// The resolver's message.
        reason: String,
    },
    /// There is no such interface on this machine.
    BadBoard {
        /// The number.
        board: u32,
        /// The existing interfaces.
        interfaces: Interfaces,
    },
    /// The name is another machine's.
    Elsewhere {
        /// Its address.
        address: IpAddr,
    },
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyHost => f.write_str("empty host name"),
            Self::BadBrackets { host } => write!(f, "'{host}' is not an IPv6 address in brackets"),
            Self::NoHost { host } => write!(f, "'{host}' is not a host address"),
            Self::Unknown { host, reason } => write!(f, "unknown host '{host}' ({reason})"),
            Self::BadBoard { board, interfaces } => {
                let have = interfaces.boards().len();
                write!(f, "board {board}: this host has {have} ({interfaces})")
            }
            Self::Elsewhere { address } => write!(f, "{address} is not an address of this machine"),
        }
    }
}

impl std::error::Error for ResolveError {}
