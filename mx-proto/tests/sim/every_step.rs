//! A transfer that every kind of interruption interrupts after each of its steps.
//!
//! ```text
//!   n0 -- message --> n1      after step 0, 1, 2, ... n something happens:
//!                             cancel, disconnect, close, kill, restart, cut, power off
//! ```
//!
//! Afterwards all operations end, no memory is accessed any more, and a message in each direction
//! arrives again.

use mx_proto::reliability::ReliableConfig;
use mx_sim::scenario::{Reliably, Unreliably, interrupt_everywhere};
use mx_sim::{Faults, Profile, Rng, Terms, World};
use std::time::Duration;

fn on_fabric(profile: Profile) -> impl FnMut(&World) -> Reliably {
    move |world| Reliably::new(world, true, profile)
}

/// Returns a port on which a transfer takes many small steps.
fn small_steps() -> Profile {
    Profile {
        packet_max: 4 << 10,
        data_max: 9_000,
        pull_block: 20_000,
        room: 6_000,
        piece: 3_000,
        keepalive: Duration::from_secs(1),
        ..Profile::default()
    }
}

#[test]
fn a_large_message_over_a_port_that_takes_packets_whole() {
    interrupt_everywhere(on_fabric(small_steps()), 60_000, 60_000);
}

#[test]
fn a_large_message_over_a_port_that_takes_packets_in_part() {
    let profile = Profile {
        parts: 1.0,
        ..small_steps()
    };
    interrupt_everywhere(on_fabric(profile), 50_000, 60_000);
}

#[test]
fn a_large_message_over_a_port_that_reads_remotely() {
    let profile = Profile {
        remote_read: true,
        ..small_steps()
    };
    interrupt_everywhere(on_fabric(profile), 60_000, 60_000);
}

#[test]
fn a_large_message_over_a_port_whose_reads_must_not_be_refused() {
    let profile = Profile {
        remote_read: true,
        refusal_ends_link: true,
        ..small_steps()
    };
    interrupt_everywhere(on_fabric(profile), 60_000, 60_000);
}

#[test]
fn a_small_message() {
    let profile = Profile {
        eager_place: 0.5,
        ..small_steps()
    };
    interrupt_everywhere(on_fabric(profile), 900, 1_000);
}

#[test]
fn a_large_message_over_datagrams() {
    over_datagrams(ReliableConfig::default(), 40_000);
}

#[test]
fn a_message_over_datagrams_that_is_taken_in_parts() {
    let config = ReliableConfig {
        window: 32,
        send_bytes: 40_000,
        ..ReliableConfig::default()
    };
    over_datagrams(config, 100_000);
}

fn over_datagrams(config: ReliableConfig, len: usize) {
    let config = ReliableConfig {
        give_up: Duration::from_secs(2),
        connect_give_up: Duration::from_secs(1),
        keepalive: Duration::from_millis(500),
        ..config
    };
    let mut life = 0;
    interrupt_everywhere(
        |world| {
            life += 1;
            let faults = Faults {
                loss: 0.05,
                ..Faults::default()
            };
            let terms = Terms {
                mtu: 4_096,
                ..Terms::with(faults)
            };
            Unreliably::new(world, terms, config, Rng::new(life))
        },
        len,
        len,
    );
}
