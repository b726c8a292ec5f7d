//! Peer names, `mx://host:board:endpoint`, as in configuration files and CONN_REQ.
//!
//! ```text
//!   "tcp://a:3334, mx://tcp@oss7.example:0:3\n"
//!                  |    |   |            | endpoint
//!                  |    |   host         board (left out: the first)
//!                  |    route: the name of a port (left out: the ports choose)
//!                  the first entry of the list with `mx://` or `mx-<zone>://`
//! ```
//!
//! A route may also stand at the end, `/tcp`. OrangeFS's clients count the slashes of an address, Mercury drops all
//! text after the number, and OrangeFS's `bmi_tcp` takes `mx-tcp://` for its own: `tcp@` passes them all, and is the
//! form that is printed.
//!
//! IPv6 addresses are in brackets. Blanks, newlines and a slash at the end are dropped, as hosts add them.
//!
//! Owns: the syntax and its error messages.

use mx_proto::Route;
use mx_sys::ports::{self, PORTS};
use std::fmt;
use std::net::Ipv6Addr;

/// Largest board number: more interfaces than a machine can sensibly have.
pub const MAX_BOARD: u32 = 255;
/// Largest endpoint number: endpoints beyond the small ones are TCP ports.
pub const MAX_ENDPOINT: u32 = 65535;
/// Longest host name, as in the DNS.
pub const MAX_HOST_LEN: usize = 253;

const TOO_MANY_NUMBERS: &str =
    "more than two numbers after the host (an IPv6 address stands in brackets)";

/// Address of a peer in its parts: `mx://route@host:board:endpoint`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PeerName {
    /// Name or address. An IPv6 address has no brackets here.
    pub host: String,
    /// Board number. `None`: not given, which means the first one.
    pub board: Option<u32>,
    /// Endpoint number. `None`: any free one, in an address to listen on.
    pub endpoint: Option<u32>,
    /// Port to use; [`Route::AUTO`] if not given.
    pub route: Route,
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mx://")?;
        if let Some(port) = ports::of_route(self.route) {
            write!(f, "{}@", port.name)?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        for number in [self.board, self.endpoint].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// Parses the first `mx://` entry of an address string, which may be a list with other methods' addresses. `Ok(None)`
/// if there is none.
pub fn parse(text: &str) -> Result<Option<PeerName>, ParseError> {
    let Some((at, entry)) = first_entry(text) else {
        return Ok(None);
    };
    parse_entry(entry, at).map(Some).map_err(|(problem, at)| {
        let text = text.trim_end().to_owned();
        ParseError { text, at, problem }
    })
}

/// Error of an invalid address, and its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    text: String,
    at: usize,
    problem: String,
}

impl ParseError {
    /// Returns the offset in bytes at which the string is invalid.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text comes from outside: quotes and control characters are escaped.
        write!(
            f,
            "address {:?}: {} at position {}",
            self.text, self.problem, self.at
        )
    }
}

impl std::error::Error for ParseError {}

/// Error and its offset in the whole string.
type Wrong = (String, usize);

fn wrong<T>(at: usize, problem: impl Into<String>) -> Result<T, Wrong> {
    Err((problem.into(), at))
}

/// Returns the part after `mx://` of the first entry that has it, and the offset of that part.
fn first_entry(text: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    for entry in text.split(is_separator) {
        if let Some(rest) = after_scheme(entry) {
            return Some((at + entry.len() - rest.len(), rest));
        }
        // Every separator is one byte long.
        at += entry.len() + 1;
    }
    None
}

fn is_separator(c: char) -> bool {
    matches!(c, ',' | ' ' | '\t' | '\n' | '\r')
}

/// Returns the part after `mx://` or `mx-<zone>://`.
fn after_scheme(entry: &str) -> Option<&str> {
    let rest = entry.strip_prefix("mx")?;
    if let Some(rest) = rest.strip_prefix("://") {
        return Some(rest);
    }
    let (zone, rest) = rest.strip_prefix('-')?.split_once("://")?;
    let named = !zone.is_empty() && !zone.contains([':', '/']);
    named.then_some(rest)
}

fn parse_entry(entry: &str, at: usize) -> Result<PeerName, Wrong> {
    let name = entry.trim_end_matches('/');
    let (before, name, at) = match name.split_once('@') {
        Some((route, name)) => (Some((route, at)), name, at + route.len() + 1),
        None => (None, name, at),
    };
    let (name, behind) = match name.split_once('/') {
        Some((name, route)) => (name, Some((route, at + name.len() + 1))),
        None => (name, None),
    };
    let (host, numbers) = match name.strip_prefix('[') {
        Some(inner) => split_brackets(inner, at + 1)?,
        None => split_plain(name, at)?,
    };
    let (board, endpoint) = match numbers {
        Some(numbers) => parse_numbers(numbers, at + name.len() - numbers.len())?,
        None => (None, None),
    };
    let route = match (before, behind) {
        (Some(_), Some((_, at))) => return wrong(at, "a second route"),
        (Some((text, at)), None) | (None, Some((text, at))) => parse_route(text, at)?,
        (None, None) => Route::AUTO,
    };
    Ok(PeerName {
        host: host.to_owned(),
        board,
        endpoint,
        route,
    })
}

/// Parses `0:3` or `3` into board and endpoint.
fn parse_numbers(numbers: &str, at: usize) -> Result<(Option<u32>, Option<u32>), Wrong> {
    let (board, endpoint) = match numbers.split_once(':') {
        None => (None, (numbers, at)),
        Some((board, rest)) => {
            if let Some(more) = rest.find(':') {
                return wrong(at + board.len() + 1 + more, TOO_MANY_NUMBERS);
            }
            let endpoint = (rest, at + board.len() + 1);
            (Some(number("board", board, at, MAX_BOARD)?), endpoint)
        }
    };
    let endpoint = number("endpoint", endpoint.0, endpoint.1, MAX_ENDPOINT)?;
    Ok((board, Some(endpoint)))
}

fn parse_route(text: &str, at: usize) -> Result<Route, Wrong> {
    let known = PORTS
        .iter()
        .filter_map(|port| Some((port.name, port.route?)));
    match known.clone().find(|(name, _)| *name == text) {
        Some((_, route)) => Ok(route),
        None => {
            let known: Vec<&str> = known.map(|(name, _)| name).collect();
            wrong(at, format!("{text:?} is no route ({})", known.join(", ")))
        }
    }
}

/// Splits `::1]:0:3` into address and numbers.
fn split_brackets(inner: &str, at: usize) -> Result<(&str, Option<&str>), Wrong> {
    let Some((host, rest)) = inner.split_once(']') else {
        return wrong(at - 1, "'[' without ']'");
    };
    let address = host.split_once('%').map_or(host, |(address, _)| address);
    let scope_is_empty = host.ends_with('%');
    if address.parse::<Ipv6Addr>().is_err() || scope_is_empty {
        return wrong(at, format!("{host:?} is not an IPv6 address"));
    }
    let after = at + host.len() + 1;
    match rest.chars().next() {
        Some(':') => Ok((host, Some(&rest[1..]))),
        Some(other) => wrong(after, format!("{other:?} where ':' should follow ']'")),
        None => Ok((host, None)),
    }
}

/// Splits `oss7:0:3` into name and numbers.
fn split_plain(name: &str, at: usize) -> Result<(&str, Option<&str>), Wrong> {
    let (host, numbers) = match name.split_once(':') {
        Some((host, numbers)) => (host, Some(numbers)),
        None => (name, None),
    };
    if host.is_empty() {
        let colons = name.bytes().filter(|&byte| byte == b':').count();
        let problem = if colons > 2 {
            TOO_MANY_NUMBERS
        } else {
            "no host name"
        };
        return wrong(at, problem);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if let Some((index, c)) = host.char_indices().find(|&(_, c)| !allowed(c)) {
        let problem = format!("character {c:?} cannot be part of a host name");
        return wrong(at + index, problem);
    }
    if host.len() > MAX_HOST_LEN {
        let len = host.len();
        let problem = format!("a host name of {len} bytes (at most {MAX_HOST_LEN})");
        return wrong(at, problem);
    }
    let dot = host.find("..").map(|index| index + 1);
    if let Some(index) = if host.starts_with('.') { Some(0) } else { dot } {
        return wrong(at + index, "a host name with nothing between two dots");
    }
    Ok((host, numbers))
}

/// Parses decimal digits. A leading 0 is rejected: the C method read it as octal.
fn number(what: &'static str, text: &str, at: usize, max: u32) -> Result<u32, Wrong> {
    if text.is_empty() {
        return wrong(at, format!("no digits in the {what} number"));
    }
    if let Some((index, c)) = text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        return wrong(at + index, format!("character {c:?} in the {what} number"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return wrong(at, format!("{what} number {text} begins with 0"));
    }
    match text.parse::<u32>() {
        Ok(value) if value <= max => Ok(value),
        _ => wrong(
            at,
            format!("{what} number {text} is out of range (0 to {max})"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_sys::ports::ROUTE_WORDS;
    use mx_sys::{ROUTE_DGRAM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP};

    fn name(host: &str, board: Option<u32>, endpoint: u32, route: Route) -> PeerName {
        PeerName {
            host: host.to_owned(),
            board,
            endpoint: Some(endpoint),
            route,
        }
    }

    fn good(text: &str) -> PeerName {
        match parse(text) {
            Ok(Some(name)) => name,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn bad(text: &str) -> String {
        let error = parse(text).expect_err(text);
        assert!(error.position() <= text.len());
        error.to_string()
    }

    #[test]
    fn an_error_says_where_it_is() {
        for (text, at) in [
            ("mx://foo:12:x", "mx://foo:12:".len()),
            ("mx://foo:x:3", "mx://foo:".len()),
            ("mx://foo:1:2:3", "mx://foo:1:2".len()),
            ("mx://[::1]:12:x", "mx://[::1]:12:".len()),
            ("mx://tcp@foo:12:x", "mx://tcp@foo:12:".len()),
        ] {
            assert_eq!(parse(text).expect_err(text).position(), at, "{text}");
        }
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(good("mx://foo:0:3"), name("foo", Some(0), 3, Route::AUTO));
        assert_eq!(good("mx://foo:3"), name("foo", None, 3, Route::AUTO));
    }

    #[test]
    fn without_numbers_the_endpoint_is_not_said() {
        for (text, host) in [
            ("mx://foo", "foo"),
            ("mx://tcp@[::1]", "::1"),
            ("mx://a:1", "a"),
        ] {
            let name = good(text);
            assert_eq!(
                (name.to_string().as_str(), name.host.as_str()),
                (text, host)
            );
            assert_eq!(name.endpoint.is_some(), text == "mx://a:1");
        }
    }

    #[test]
    fn what_hosts_append_is_dropped() {
        for text in [
            "mx://foo:0:3\n",
            "mx://foo:0:3/",
            "mx://foo:0:3 \t\n",
            "  mx://foo:0:3",
            "mx://foo:0:3\r\n",
            "mx://foo:0:3//\n",
        ] {
            assert_eq!(good(text).to_string(), "mx://foo:0:3", "{text:?}");
        }
    }

    #[test]
    fn our_entry_is_found_in_a_list_whatever_its_zone() {
        assert_eq!(good("tcp://a:1,mx://b:2").host, "b");
        assert_eq!(good("tcp://a:1, mx-zone1://h:3").endpoint, Some(3));
        assert_eq!(good("mx://first:1,mx://second:2").host, "first");
    }

    #[test]
    fn other_methods_addresses_are_none_of_ours() {
        for text in [
            "",
            "tcp://mx:3334",
            "mx:/a",
            "mxx://a",
            "mx-://a:1",
            "amx://a:1",
            "ib://mx://a:1",
            "mx",
            "mx:",
        ] {
            assert_eq!(parse(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn a_route_stands_before_the_host_or_at_the_end() {
        for (before, behind, expected) in [
            (
                "mx://tcp@h:0:3",
                "mx://h:0:3/tcp",
                name("h", Some(0), 3, ROUTE_TCP),
            ),
            (
                "mx://local@h:3/\n",
                "mx://h:3/local/\n",
                name("h", None, 3, ROUTE_LOCAL),
            ),
            (
                "mx-a://rdm@h:1:3",
                "mx-a://h:1:3/rdm",
                name("h", Some(1), 3, ROUTE_RDM),
            ),
            (
                "tcp://h:1,mx://dgram@[::1]:3",
                "tcp://h:1,mx://[::1]:3/dgram",
                name("::1", None, 3, ROUTE_DGRAM),
            ),
        ] {
            assert_eq!(good(before), expected, "{before}");
            assert_eq!(good(behind), expected, "{behind}");
        }
        assert_eq!(good("mx://h:3/tcp,tcp://h:1").to_string(), "mx://tcp@h:3");
        assert_eq!(
            bad("mx://h:3/udp"),
            format!(
                "address \"mx://h:3/udp\": \"udp\" is no route ({}) at position 9",
                ROUTE_WORDS[1..].join(", ")
            )
        );
        for (text, problem) in [
            ("mx://udp@h:3", "\"udp\" is no route"),
            ("mx://@h:3", "\"\" is no route"),
            ("mx://TCP@h:3", "\"TCP\" is no route"),
            ("mx://h:3/tcp/x", "\"tcp/x\" is no route"),
            ("mx://tcp@h:3/tcp", "a second route"),
            ("mx://tcp@rdm@h:3", "'@' cannot be part of a host name"),
            ("mx://tcp@", "no host name at position 9"),
            ("mx://tcp@:3", "no host name at position 9"),
            ("mx://h:3@tcp", "\"h:3\" is no route"),
        ] {
            assert!(bad(text).contains(problem), "{text}: {}", bad(text));
        }
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        assert_eq!(good("mx://[::1]:3"), name("::1", None, 3, Route::AUTO));
        assert_eq!(good("mx://[fe80::1%eth0]:0:3").host, "fe80::1%eth0");
        assert_eq!(good("mx://[::1]:0:3/tcp").to_string(), "mx://tcp@[::1]:0:3");
        assert_eq!(
            bad("mx://[::1:3"),
            "address \"mx://[::1:3\": '[' without ']' at position 5"
        );
        assert_eq!(
            bad("mx://[1.2.3.4]:3"),
            "address \"mx://[1.2.3.4]:3\": \"1.2.3.4\" is not an IPv6 address at position 6"
        );
        assert!(bad("mx://[fe80::1%]:3").contains("\"fe80::1%\" is not an IPv6 address"));
        assert!(bad("mx://[::1]3").ends_with("'3' where ':' should follow ']' at position 10"));
        assert!(bad("mx://::1:3").contains("stands in brackets"));
        assert!(bad("mx://fe80::1:3").contains("stands in brackets"));
    }

    #[test]
    fn host_names_follow_the_dns_and_may_have_underscores() {
        assert_eq!(good("mx://a_b-c.example.:3").host, "a_b-c.example.");
        assert_eq!(good("mx://10.1.2.3:3").host, "10.1.2.3");
        let long = "h".repeat(MAX_HOST_LEN);
        assert_eq!(good(&format!("mx://{long}:1")).host, long);
        let message = bad(&format!("mx://{long}x:1"));
        assert!(message.contains("a host name of 254 bytes (at most 253) at position 5"));
        assert!(
            bad("mx://a\u{e9}b:3").ends_with("'é' cannot be part of a host name at position 6")
        );
        assert_eq!(good("mx://a b:3").host, "a");
        assert!(bad("mx://a\"b:3").ends_with("cannot be part of a host name at position 6"));
        assert!(bad("mx://a..b:3").ends_with("nothing between two dots at position 7"));
        assert!(bad("mx://.a:3").ends_with("nothing between two dots at position 5"));
        assert!(bad("mx://:3").ends_with("no host name at position 5"));
        assert!(bad("mx://").ends_with("no host name at position 5"));
        assert!(bad("mx:///a").ends_with("no host name at position 5"));
    }

    #[test]
    fn numbers_are_decimal_digits_in_range() {
        assert_eq!(good("mx://h:255:65535").endpoint, Some(MAX_ENDPOINT));
        assert_eq!(good("mx://h:0:0").board, Some(0));
        assert!(
            bad("mx://h:256:3")
                .ends_with("board number 256 is out of range (0 to 255) at position 7")
        );
        assert!(
            bad("mx://h:65536")
                .ends_with("endpoint number 65536 is out of range (0 to 65535) at position 7")
        );
        assert!(
            bad("mx://h:99999999999999999999").contains("99999999999999999999 is out of range")
        );
        assert!(bad("mx://h:010").ends_with("endpoint number 010 begins with 0 at position 7"));
        assert!(bad("mx://h:00:3").ends_with("board number 00 begins with 0 at position 7"));
        assert!(bad("mx://h:").ends_with("no digits in the endpoint number at position 7"));
        assert!(bad("mx://h::3").ends_with("no digits in the board number at position 7"));
        assert!(bad("mx://h:0:").ends_with("no digits in the endpoint number at position 9"));
        assert!(bad("mx://h:-1:3").ends_with("character '-' in the board number at position 7"));
        assert!(
            bad("mx://h:0:3x").ends_with("character 'x' in the endpoint number at position 10")
        );
        assert!(bad("mx://h:0x3").ends_with("character 'x' in the endpoint number at position 8"));
        assert!(bad("mx://h:1:2:3").contains("more than two numbers"));
    }

    #[test]
    fn every_kind_of_problem_has_its_own_message() {
        let texts = [
            "mx://:1",
            "mx://a*:1",
            "mx://a..b:1",
            "mx://[::1",
            "mx://[x]:1",
            "mx://[::1]x",
            "mx://a:",
            "mx://a:x",
            "mx://a:01",
            "mx://a:65536",
            "mx://a:1:2:3",
            "mx://a:1/b",
            "mx://tcp@a:1/tcp",
        ];
        let kinds: std::collections::HashSet<_> = texts
            .iter()
            .map(|text| parse(text).unwrap_err().problem)
            .collect();
        assert_eq!(kinds.len(), texts.len());
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for text in [
            "mx://foo:0:3",
            "mx://foo:3",
            "mx://local@[2001:db8::5]:1:70",
            "mx://tcp@10.0.0.1:65535",
            "mx://rdm@10.0.0.1:65535",
            "mx://dgram@10.0.0.1:65535",
        ] {
            assert_eq!(good(text).to_string(), text);
        }
    }

    #[test]
    fn positions_count_from_the_start_of_the_whole_list() {
        let error = parse("tcp://a:1, mx://h:x").unwrap_err();
        assert_eq!(error.position(), 18);
    }
}
