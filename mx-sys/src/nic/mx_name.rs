//! Interfaces as the MX API names them: `host:board`.
//!
//! ```text
//!   "server7"  "server7:1"  "[2001:db8::5]:0"  "2001:db8::5"  --resolve_mx_name-->  NicId
//!   "server7:1"                                               <------mx_name------
//! ```
//!
//! The board number of another machine is the index of its address among the addresses of its name.

use super::{ResolveError, Resolved, address_in, fresh_table, machine_name, resolve};
use crate::literal;
use mx_proto::NicId;

/// Longest name that fits the MX API's buffers, without the terminating NUL.
pub const MX_NAME_MAX: usize = 79;

/// Returns the interface's name and board as [`resolve_mx_name`] accepts them, at most [`MX_NAME_MAX`] bytes: this
/// machine's name and the board's number, a name from the peers file or an earlier lookup, else the address. `None` for
/// an unknown id.
pub fn mx_name(nic: NicId) -> Option<String> {
    let table = fresh_table();
    let address = address_in(&table, nic)?;
    if table.interfaces.has(address.ip()) {
        // An address of this machine that belongs to no board, such as 127.0.0.1, counts as the first board.
        let board = table.board_number(nic).unwrap_or(0);
        let own = format!("{}:{board}", machine_name());
        return Some(if own.len() <= MX_NAME_MAX {
            own
        } else {
            format!("localhost:{board}")
        });
    }
    let named = table.names_of(nic, address.ip()).into_iter();
    let mut named = named.map(|(host, board)| format!("{host}:{board}"));
    let fits = named.find(|name| name.len() <= MX_NAME_MAX);
    Some(fits.unwrap_or_else(|| format!("{}:0", literal::text(address))))
}

/// Resolves `host` or `host:board` as [`resolve`] does. An IPv6 address followed by a board needs brackets.
pub fn resolve_mx_name(name: &str) -> Result<Resolved, ResolveError> {
    let (host, board) = split(name);
    let board = match board {
        None => None,
        Some(digits) => Some(number(digits).ok_or_else(|| ResolveError::Unknown {
            host: name.to_owned(),
            reason: format!("'{digits}' is no board number"),
        })?),
    };
    resolve(host, board)
}

/// Splits a name into host and board. Several colons without brackets are an IPv6 address.
fn split(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((host, board)) if host.ends_with(']') || !host.contains(':') => (host, Some(board)),
        _ => (name, None),
    }
}

/// Parses decimal digits, without a sign or spaces.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::{boards, own_nic, socket_addresses};

    fn id(name: &str) -> NicId {
        resolve_mx_name(name).unwrap().nic
    }

    #[test]
    fn names_of_this_machine_name_its_boards() {
        let first = own_nic(None).unwrap();
        let own = machine_name();
        for name in [
            "localhost",
            "localhost:0",
            own,
            &format!("{own}:0"),
            "127.0.0.1:0",
        ] {
            let resolved = resolve_mx_name(name).unwrap();
            assert!(resolved.is_local(), "{name}");
            assert_eq!(resolved.nic, first, "{name}");
        }
        for (number, (nic, _)) in boards().into_iter().enumerate() {
            let name = mx_name(nic).unwrap();
            assert_eq!(name, format!("{own}:{number}"));
            assert_eq!(id(&name), nic);
        }
        // The loopback's IPv6 address has an id that belongs to no board.
        assert_ne!(id("[::1]:0"), first);
        assert_eq!(mx_name(id("::1")).unwrap(), format!("{own}:0"));
        let beyond = format!("{own}:{}", boards().len());
        assert!(resolve_mx_name(&beyond).is_err());
    }

    #[test]
    fn names_of_others_resolve_back() {
        for name in ["192.0.2.77", "[2001:db8::77]", "[fe80::77%3]"] {
            let nic = id(name);
            assert_eq!(mx_name(nic).unwrap(), format!("{name}:0"));
            assert_eq!(id(&format!("{name}:0")), nic);
            // Link-local addresses are useless without their scope.
            let address = socket_addresses(nic, 0).pop().unwrap();
            assert_eq!(literal::text(address), name);
        }
        assert_eq!(id("2001:db8::77"), id("[2001:db8::77]:0"));
    }

    #[test]
    fn what_is_no_name_is_told() {
        let error = |name: &str| resolve_mx_name(name).unwrap_err().to_string();
        assert_eq!(error(""), "empty host name");
        assert_eq!(error(":0"), "empty host name");
        assert_eq!(
            error("localhost:x"),
            "unknown host 'localhost:x' ('x' is no board number)"
        );
        for board in ["", "-1", "+1", " 0", "4294967296"] {
            let text = error(&format!("localhost:{board}"));
            assert!(text.ends_with(&format!("('{board}' is no board number)")));
        }
        assert!(error("[::1]:a").contains("'a' is no board number"));
        assert!(error("[x]:0").contains("not an IPv6 address"));
        assert!(error("a:b:c").starts_with("unknown host 'a:b:c'"));
        assert!(mx_name(NicId(0)).is_none());
        assert!(mx_name(NicId(u64::MAX)).is_none());
    }
}
