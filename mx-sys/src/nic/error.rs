//! Errors of resolving a host.
//!
//! ```text
//!   text --> "", "[x]", 0.0.0.0: not a valid name              EmptyHost, BadBrackets, NoHost
//!        --> not found                                         Unknown
//!        --> this machine, but it has no such interface        BadBoard
//!        --> another machine, where this one is required       Elsewhere
//! ```
//!
//! Out of scope: error codes, which the libraries above choose.

use mx_port_base::interfaces::Interfaces;
use std::fmt;
use std::net::IpAddr;

/// Errors of resolving a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResolveError {
    /// The name is empty.
    EmptyHost,
    /// The brackets contain something other than an IPv6 address.
    BadBrackets {
        /// Text as given.
        host: String,
    },
    /// An address that no host has, such as 0.0.0.0.
    NoHost {
        /// Text as given.
        host: String,
    },
    /// The resolver does not know the name.
    Unknown {
        /// Name as given.
        host: String,
        /// The resolver's message.
        reason: String,
    },
    /// No interface of this machine has that number.
    BadBoard {
        /// Requested number.
        board: u32,
        /// Existing interfaces.
        interfaces: Interfaces,
    },
    /// The name belongs to another machine.
    Elsewhere {
        /// Address of that machine.
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
