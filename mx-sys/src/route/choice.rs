//! The choice of the ports for a link.
//!
//! ```text
//!   MX_PORT, the address's prefix, the target's machine, the open ports --> first port --error?--> fallback
//! ```
//!
//! The table of all cases is in the tests below.
//!
//! Out of scope: the ports.

use mx_port_base::ports::{self, LOCAL, LOOPBACK, RDM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP, TCP};
use mx_proto::Route;
use mx_proto::port::ConnectError;

/// Location of a link's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Location {
    /// The connecting endpoint itself.
    Oneself,
    /// Another endpoint of this machine.
    ThisMachine,
    /// Another machine.
    Elsewhere,
}

/// Ports that can carry a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    /// Number of the port to try first.
    pub(super) first: u8,
    /// Number of the port to try if the first cannot reach the peer; `None`: no other port may be used.
    pub(super) fallback: Option<u8>,
}

/// Chooses the ports of a link to a target at `location`. `asked`: the route in its address; `policy`: the endpoint's
/// setting; `rdm_open`: whether the rdm port was opened with the endpoint. Returns `None` if no port leads there.
pub(super) fn choose(
    policy: Route,
    asked: Route,
    location: Location,
    rdm_open: bool,
) -> Option<Choice> {
    let strict = asked != Route::AUTO;
    let route = if strict { asked } else { policy };
    let (first, or_tcp) = match route {
        _ if location == Location::Oneself => (LOOPBACK, false),
        Route::AUTO if location == Location::ThisMachine => (LOCAL, true),
        Route::AUTO if rdm_open => (RDM, true),
        Route::AUTO | ROUTE_TCP => (TCP, false),
        ROUTE_LOCAL if location == Location::ThisMachine => (LOCAL, false),
        ROUTE_LOCAL => return None,
        ROUTE_RDM if !strict && !rdm_open => return None,
        other => (ports::of_route(other)?.number, !strict),
    };
    Some(Choice {
        first,
        fallback: or_tcp.then_some(TCP),
    })
}

impl Choice {
    /// Returns the port to try after the first one has failed with `error`; `None` for none.
    pub(super) fn after(self, error: ConnectError) -> Option<u8> {
        let goes_on = match error {
            // The port's links are all in use, the port has failed, or it has no route to the target.
            ConnectError::NoResources | ConnectError::NoRoute => true,
            // The peer may be in a container with another network namespace, which Unix sockets do not cross.
            ConnectError::Refused => self.first == LOCAL,
            ConnectError::UnknownNic | ConnectError::BadEndpoint => false,
        };
        self.fallback.filter(|_| goes_on)
    }
}

#[cfg(test)]
mod connect_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use mx_port_base::ports::{DGRAM, ROUTE_WORDS};

    /// Ports of a link in their order. `rdm`: whether that port was opened with the endpoint; *other*: each port
    /// without a row of its own.
    const TABLE: &str = "
    MX_PORT  address  rdm     this machine  elsewhere

    auto     -        closed  local,tcp     tcp
    auto     -        open    local,tcp     rdm,tcp
    local    -        either  local         none
    tcp      -        either  tcp           tcp
    rdm      -        closed  none          none
    rdm      -        open    rdm,tcp       rdm,tcp
    other    -        either  other,tcp     other,tcp
    any      local@   either  local         none
    any      tcp@     either  tcp           tcp
    any      rdm@     either  rdm           rdm
    any      other@   either  other         other
    any      foreign@ either  none          none
";

    /// A case of the table.
    #[derive(Clone, Debug)]
    pub(super) struct Case {
        pub(super) policy: Route,
        pub(super) asked: Route,
        pub(super) rdm_open: bool,
        pub(super) this_machine: Vec<String>,
        pub(super) elsewhere: Vec<String>,
    }

    /// Returns all cases, with the rows for several ports expanded.
    pub(super) fn cases() -> Vec<Case> {
        let list = |ports: &str| {
            let names = ports.split(',').filter(|name| *name != "none");
            names.map(str::to_owned).collect()
        };
        let mut cases = Vec::new();
        let rows = TABLE.lines().skip(3).filter(|row| !row.trim().is_empty());
        let mut rows = Vec::from_iter(rows.map(|row| vec![row.to_owned()]));
        for row in rows.iter_mut().filter(|row| row[0].contains("other")) {
            let each = ROUTE_WORDS[4..].iter();
            *row = each.map(|name| row[0].replace("other", name)).collect();
        }
        for row in rows.concat() {
            let [policy, address, rdm, this_machine, elsewhere] =
                *Vec::from_iter(row.split_whitespace())
            else {
                panic!("{row}");
            };
            let asked = match address.strip_suffix('@') {
                None => Route::AUTO,
                Some(name) => {
                    let known = ROUTE_WORDS.iter().position(|known| *known == name);
                    known.map_or(Route(77), |number| Route(number as u8))
                }
            };
            for (number, name) in (0..).zip(ROUTE_WORDS) {
                for (word, rdm_open) in [("closed", false), ("open", true)] {
                    if [name, "any"].contains(&policy) && [word, "either"].contains(&rdm) {
                        cases.push(Case {
                            policy: Route(number),
                            asked,
                            rdm_open,
                            this_machine: list(this_machine),
                            elsewhere: list(elsewhere),
                        });
                    }
                }
            }
        }
        cases
    }

    #[test]
    fn ports_are_chosen_as_the_table_says() {
        for case in cases() {
            let choose = |location| {
                let choice = choose(case.policy, case.asked, location, case.rdm_open);
                let numbers = choice.map(|it| [Some(it.first), it.fallback]);
                let numbers = numbers.into_iter().flatten().flatten();
                Vec::from_iter(numbers.filter_map(ports::name))
            };
            assert_eq!(choose(Location::Oneself), ["loopback"], "{case:?}");
            assert_eq!(choose(Location::ThisMachine), case.this_machine, "{case:?}");
            assert_eq!(choose(Location::Elsewhere), case.elsewhere, "{case:?}");
        }
    }

    #[test]
    fn a_port_that_does_not_lead_there_is_followed_by_the_fallback() {
        use ConnectError::*;
        for (first, goes_on) in [
            (LOCAL, &[NoResources, NoRoute, Refused][..]),
            (RDM, &[NoResources, NoRoute]),
            (DGRAM, &[NoResources, NoRoute]),
        ] {
            for error in [NoResources, NoRoute, Refused, UnknownNic, BadEndpoint] {
                let fallback = goes_on.contains(&error).then_some(TCP);
                let choice = |fallback| Choice { first, fallback };
                assert_eq!(choice(Some(TCP)).after(error), fallback, "{first} {error}");
                assert_eq!(choice(None).after(error), None, "{first} {error}");
            }
        }
    }
}
