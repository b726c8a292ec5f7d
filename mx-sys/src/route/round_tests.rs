//! Polls that look at active links alone, and those that look at everything.

use super::host::{HostPorts, LONE_ROUND, ROUND};
use super::open::{EndpointChoice, OpenOptions};
use mx_port_base::clock::MonotonicClock;
use mx_port_base::ports::{ROUTE_LOCAL, ROUTE_TCP};
use mx_proto::port::LinkControl;
use mx_proto::round::{Begun, Next, PortEvent, Rounds};
use mx_proto::{Clock, Identity, LinkId, Route, Target};
use std::time::Duration;

const BUDGET: usize = 64;

/// Looks at everything. Returns the links that have come up.
fn look_around(ports: &mut HostPorts) -> Vec<LinkId> {
    let mut up = Vec::new();
    ports.begin(MonotonicClock.now(), BUDGET);
    loop {
        match ports.next() {
            Next::Event(PortEvent::Up(link)) => up.push(link),
            Next::Event(_) => {}
            Next::End { .. } => return up,
        }
    }
}

/// Connects one to the other over that port.
fn connect(one: &mut HostPorts, to: &Identity, other: &mut HostPorts, route: Route) {
    let target = Target {
        nic: to.nic,
        endpoint: to.endpoint,
        route,
    };
    let begin = MonotonicClock.now();
    let link = one.connect(target, begin).unwrap();
    while !look_around(one).contains(&link) {
        assert!(begin.after(Duration::from_secs(20)) > MonotonicClock.now());
        look_around(other);
        // Each poll has its number.
        for ports in [&mut *one, &mut *other] {
            ports.begin_active(BUDGET);
        }
    }
}

/// Number of polls up to the next one that looks at everything, that one included.
fn polls_to_round(ports: &mut HostPorts) -> u32 {
    let mut polls = 1;
    while ports.begin_active(BUDGET) != Begun::Elsewhere {
        polls += 1;
    }
    look_around(ports);
    polls
}

/// [`polls_to_round`] once the interval has taken effect.
fn interval(ports: &mut HostPorts) -> u32 {
    while polls_to_round(ports) == 1 {}
    polls_to_round(ports);
    polls_to_round(ports)
}

#[test]
fn what_is_known_of_besides_is_looked_at_by_the_next_poll() {
    let open = || HostPorts::open(OpenOptions::new(EndpointChoice::Any)).unwrap();
    let ((mut one, own), (mut other, to)) = (open(), open());
    assert_eq!(polls_to_round(&mut one), 1, "no link");
    connect(&mut one, &to, &mut other, ROUTE_LOCAL);
    assert_eq!(interval(&mut one), LONE_ROUND);
    one.note_control();
    assert_eq!(polls_to_round(&mut one), 1);
    assert!(polls_to_round(&mut one) > 1);
    let oneself = Target {
        nic: own.nic,
        endpoint: own.endpoint,
        route: Route::AUTO,
    };
    let link = one.connect(oneself, MonotonicClock.now()).unwrap();
    assert_eq!(one.begin_active(BUDGET), Begun::Elsewhere);
    assert!(look_around(&mut one).contains(&link));
    assert_eq!(interval(&mut one), LONE_ROUND);
    connect(&mut one, &to, &mut other, ROUTE_TCP);
    assert_eq!(interval(&mut one), ROUND);
}
