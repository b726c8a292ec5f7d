//! Gauges of a method while it lends, waits and drops, on the simulated network; and that memory
//! which runs short is told once.

use crate::rig::Rig;
use bmi_method::method::{MethodReport, PeerGauges};
use bmi_method::peer::state::Name;
use log::{Log, Metadata, Record};
use mx_proto::flow::CREDIT;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::cell::RefCell;
use std::sync::Once;
use std::time::Duration;

thread_local! {
    /// Warnings of this thread's test: everything of the simulation runs in it.
    static WARNINGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Collector;

impl Log for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            WARNINGS.with_borrow_mut(|all| all.push(record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// From here on, [`warnings_of`] knows what this thread was warned of.
fn collect_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Collector).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
    WARNINGS.with_borrow_mut(Vec::clear);
}

/// Warnings with a setting and its value in them, of all methods of the test.
fn warnings_of(setting: &str) -> Vec<String> {
    WARNINGS.with_borrow(|all| {
        let of_it = all.iter().filter(|line| line.contains(setting));
        of_it.cloned().collect()
    })
}

fn server_and_client(rig: &mut Rig) -> (NodeId, NodeId) {
    let (server, client) = (rig.add(Profile::default()), rig.add(Profile::default()));
    rig.introduce(client, server);
    rig.peek(server).fetching = false;
    (server, client)
}

fn report(rig: &mut Rig, node: NodeId) -> MethodReport {
    let report = rig.peek(node).method.report();
    let flow = report.flow;
    let parts = flow.free + flow.lent + flow.drawn + flow.copies + flow.tombstones;
    assert_eq!(parts, flow.total, "{flow:?}");
    assert!(report.usage.0 <= report.usage.1);
    report
}

/// The gauges of `of` for its peer `node`.
fn peer(rig: &mut Rig, of: NodeId, node: NodeId) -> PeerGauges {
    let host = rig.peek(of);
    let addr = host.addr(node).as_ptr();
    let key = host.method.peers().of_addr(addr).unwrap();
    host.method.peer_gauges(key)
}

#[test]
fn a_sender_short_of_credits_is_seen_on_both_sides_until_it_is_served() {
    let mut rig = Rig::new(1);
    rig.lend(3);
    let (server, client) = server_and_client(&mut rig);
    for tag in 0..6 {
        rig.host(client).send_unexpected(server, tag, &[1; 100]);
    }
    rig.run_for(Duration::from_millis(10));
    let here = report(&mut rig, server);
    // Three with credits and one in the slot.
    assert_eq!((here.flow.remotes, here.flow.lent), (1, 3));
    assert_eq!((here.inbox.messages, here.inbox.bytes), (4, 400));
    assert_eq!(here.usage.0, 3 * CREDIT as u64);
    let there = report(&mut rig, client);
    assert!(there.credit_stalls > 0, "{there:?}");
    assert_eq!((there.stalled, there.operations), (1, 2));

    let borrower = peer(&mut rig, server, client);
    assert_eq!((borrower.state, borrower.pending), (Name::Ready, 0));
    let account = borrower.account.unwrap();
    assert_eq!(
        (account.credit_limit, account.waiting, account.free),
        (3, 3, 0)
    );
    let lender = peer(&mut rig, client, server).account.unwrap();
    assert_eq!((lender.send_free, lender.send_waiting), (0, 2));
    assert!(lender.send_stalled);

    rig.host(server).fetching = true;
    rig.run("all of them", |rig| rig.peek(server).got.len() == 6);
    rig.run_for(Duration::from_millis(10));
    let here = report(&mut rig, server);
    assert_eq!((here.inbox.messages, here.inbox.bytes), (0, 0));
    let there = report(&mut rig, client);
    assert_eq!((there.stalled, there.operations), (0, 0));
}

#[test]
fn who_waits_no_more_is_not_counted_whatever_ended_it() {
    for (seed, end) in ["cancel", "time-out", "drop"].into_iter().enumerate() {
        let mut rig = Rig::new(10 + seed as u64);
        rig.lend(1);
        rig.settings.unexpected_timeout = (end == "time-out").then_some(Duration::from_millis(50));
        let (server, client) = server_and_client(&mut rig);
        let labels: Vec<_> = (0..4)
            .map(|tag| rig.host(client).send_unexpected(server, tag, b"x"))
            .collect();
        rig.run_for(Duration::from_millis(10));
        assert_eq!(report(&mut rig, client).stalled, 1, "{end}");
        match end {
            "cancel" => {
                for label in &labels[2..] {
                    rig.host(client).cancel(*label);
                }
            }
            "time-out" => rig.run_for(Duration::from_millis(200)),
            _ => {
                let addr = rig.peek(client).addr(server);
                rig.host(client).drop_addr(addr);
            }
        }
        assert_eq!(report(&mut rig, client).stalled, 0, "{end}");
    }
}

#[test]
fn messages_that_wait_and_peers_that_are_gone_are_seen() {
    let mut rig = Rig::new(3);
    let (server, client) = server_and_client(&mut rig);
    rig.host(client).send(server, 1, &[7; 1000]);
    rig.host(client).send_unexpected(server, 2, &[7; 1000]);
    rig.run_for(Duration::from_millis(10));
    let here = report(&mut rig, server);
    assert_eq!((here.early_bytes, here.inbox.messages), (1000, 1));
    assert_eq!((here.inbox.bytes, here.flow.tombstones), (1000, 0));
    rig.kill(client);
    rig.run("the loss", |rig| {
        peer(rig, server, client).account.is_none()
    });
    let here = report(&mut rig, server);
    // A message of 1000 bytes is three credits.
    assert_eq!((here.flow.tombstones, here.flow.remotes), (3, 0));
    assert_eq!(peer(&mut rig, server, client).state, Name::Init);
    rig.host(server).fetching = true;
    rig.run("the message", |rig| rig.peek(server).got.len() == 1);
    let here = report(&mut rig, server);
    assert_eq!((here.flow.tombstones, here.usage.0), (0, 0));
}

#[test]
fn memory_that_is_nearly_used_up_is_told_once() {
    collect_warnings();
    let mut rig = Rig::new(8);
    rig.limit_unexpected(1 << 20, 1 << 14);
    let server = rig.add(Profile::default());
    rig.peek(server).fetching = false;
    let mut clients = Vec::new();
    while report(&mut rig, server).usage.0 <= (1 << 20) / 80 * 63 {
        assert_eq!(warnings_of("MX_UNEXPECTED_BYTES"), [""; 0]);
        let client = rig.add(Profile::default());
        rig.introduce(client, server);
        clients.push(client);
        assert!(clients.len() < 200, "{:?}", report(&mut rig, server));
        for client in &clients {
            for tag in 0..20 {
                rig.host(*client).send(server, tag, &[1; 4000]);
            }
        }
        rig.run_for(Duration::from_millis(1));
    }
    for _ in 0..2 {
        rig.run_for(Duration::from_millis(20));
        let told = warnings_of("MX_UNEXPECTED_BYTES=1048576");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("nine tenths"), "{told:?}");
    }
    // Another life tells it again.
    rig.kill(server);
    rig.restart(server, Profile::default());
    for _ in 0..20 {
        for client in &clients {
            for tag in 0..20 {
                rig.host(*client).send(server, tag, &[1; 4000]);
            }
        }
        rig.run_for(Duration::from_millis(20));
    }
    assert_eq!(warnings_of("MX_UNEXPECTED_BYTES=1048576").len(), 2);
}
