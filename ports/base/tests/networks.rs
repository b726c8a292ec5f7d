//! The order of interfaces, and the kernel's reports of their changes, in a network namespace of
//! the test, if the machine allows one.

use crate::own_network::{have_own_network, ip};
use crate::own_process::in_own_process;
use mx_port_base::epoll::Epoll;
use mx_port_base::interfaces::Interfaces;
use mx_port_base::netlink::Watch;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn order() -> String {
    Interfaces::now().to_string()
}

/// Returns the order once the kernel has reported a carrier, which it does at most once a second.
fn order_after_carrier(expected: &str) -> String {
    let until = Instant::now() + Duration::from_secs(10);
    while order() != expected && Instant::now() < until {
        sleep(Duration::from_millis(10));
    }
    order()
}

#[test]
fn container_bridge_ranks_after_a_later_network() {
    in_own_process!();
    if !have_own_network() {
        eprintln!("no network of its own: not tried");
        return;
    }
    assert_eq!(order(), "0: lo 127.0.0.1");
    let run = |all: &[&str]| all.iter().for_each(|one| assert!(ip(one), "ip {one}"));
    if !ip("link add docker0 type bridge") {
        eprintln!("no bridges in this kernel: not tried");
        return;
    }
    run(&[
        "addr add 172.17.0.1/16 dev docker0",
        "link set docker0 addrgenmode none up",
    ]);
    assert_eq!(order(), "0: docker0 172.17.0.1", "it is all there is");
    run(&[
        "link add eth0 type veth peer name far",
        "link set eth0 addrgenmode none",
        "addr add 10.0.0.1/24 dev eth0",
        "link set eth0 up",
    ]);
    let idle = "0: docker0 172.17.0.1, 1: eth0 10.0.0.1";
    assert_eq!(order(), idle, "neither has carrier");
    run(&["link set far addrgenmode none up"]);
    let network_first = "0: eth0 10.0.0.1, 1: docker0 172.17.0.1";
    assert_eq!(order_after_carrier(network_first), network_first);
    // A container starts: the bridge has carrier, and its port an address of its own.
    run(&[
        "link add port type veth peer name inside",
        "link set inside addrgenmode none up",
        "link set port master docker0",
        "link set port up",
        "addr add 10.9.0.1/32 dev port",
    ]);
    let with_container = "0: eth0 10.0.0.1, 1: docker0 172.17.0.1, 2: port 10.9.0.1";
    assert_eq!(order_after_carrier(with_container), with_container);
}

/// Returns whether a change is reported in time; the kernel may report it when the command that
/// made it has ended.
fn changes_soon(watch: &mut Watch) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        if watch.changed() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn each_change_is_told_once() {
    in_own_process!();
    if !have_own_network() {
        eprintln!("no network of its own: not tried");
        return;
    }
    let mut watch = Watch::new();
    assert!(watch.changed(), "before it was made");
    assert!(!watch.changed());
    for change in [
        "addr add 10.77.0.1/32 dev lo",
        "addr add fd77::1/128 dev lo nodad",
        "link add docker0 type bridge",
        "addr del 10.77.0.1/32 dev lo",
    ] {
        // Some kernels have no bridges or no IPv6.
        if ip(change) {
            assert!(changes_soon(&mut watch), "{change}");
        }
        assert!(!watch.changed(), "{change}");
    }
    // More changes than the watch has room for.
    for _ in 0..300 {
        assert!(ip("addr add 10.77.0.1/32 dev lo") && ip("addr del 10.77.0.1/32 dev lo"));
    }
    let nest = Epoll::new().unwrap();
    nest.join(0, watch.raw()).unwrap();
    assert_eq!(nest.readable(), 1);
    assert!(watch.changed());
    assert_eq!(nest.readable(), 0, "no event loop is woken for ever");
    assert!(!watch.changed());
    // Later changes are reported again.
    assert!(ip("addr add 10.77.0.1/32 dev lo"));
    assert_eq!(nest.readable(), 1);
    assert!(watch.changed() && watch.raw().is_some());
}
