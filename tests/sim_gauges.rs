//! What can be seen of a method while it lends, waits and drops, on the simulated network; and that a
//! limit which is hit is told once.

mod sim;

use bmi_mx::match_layout::{MessageType, VERSION, bits};
use bmi_mx::method::PeerGauges;
use bmi_mx::peer::handshake::{ConnReq, Extension};
use bmi_mx::peer::state::Name;
use log::{Log, Metadata, Record};
use mx_proto::ledger::CREDIT_COST;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use mx_sys::published::MethodGauges;
use sim::Rig;
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

fn gauges(rig: &mut Rig, node: NodeId) -> MethodGauges {
    let gauges = rig.peek(node).method.gauges();
    let credits = gauges.credits;
    let parts = credits.bank + credits.drawn + credits.lent + credits.estates;
    assert_eq!(parts, credits.total, "{credits:?}");
    assert!(gauges.memory.unexpected <= gauges.memory.unexpected_limit);
    assert!(gauges.memory.unexpected_used <= gauges.memory.unexpected_limit);
    gauges
}

/// What `of` sees of `node`.
fn peer(rig: &mut Rig, of: NodeId, node: NodeId) -> PeerGauges {
    let host = rig.peek(of);
    let addr = host.addr(node).as_ptr();
    let key = host.method.peers().of_addr(addr).unwrap();
    host.method.peer_gauges(key)
}

/// A peer that has connected and been told its id, and knows no credits.
fn old_peer(rig: &mut Rig, server: NodeId, loan: Option<u16>) -> (NodeId, u32) {
    let stranger = rig.add_stranger();
    rig.stranger(stranger).connect(server);
    rig.run("the connect", |rig| {
        rig.peek_stranger(stranger).connected.is_some()
    });
    let name = format!("mx://node{stranger}:0:{stranger}");
    let body = match loan {
        None => [name.as_bytes(), b"\0"].concat(),
        loan => ConnReq::emit(&name, Extension { loan }),
    };
    let request = bits(MessageType::ConnReq, 5, VERSION);
    rig.stranger(stranger).send(request.0, &body);
    rig.run("the answer", |rig| {
        !rig.peek_stranger(stranger).inbox().messages.is_empty()
    });
    let (_, answer, _) = &rig.peek_stranger(stranger).inbox().messages[0];
    (stranger, (answer.0 >> 32) as u32 & 0xf_ffff)
}

#[test]
fn a_sender_short_of_credits_is_seen_on_both_sides_until_it_is_served() {
    let mut rig = Rig::new(1);
    let credits = &mut rig.settings.credits;
    (credits.initial, credits.minimum, credits.maximum) = (3, 3, 3);
    let (server, client) = server_and_client(&mut rig);
    for tag in 0..5 {
        rig.host(client).send_unexpected(server, tag, &[1; 100]);
    }
    rig.run_for(Duration::from_millis(10));
    let here = gauges(&mut rig, server);
    assert_eq!((here.credits.peers, here.credits.lent), (1, 3));
    assert_eq!((here.queues.ready, here.credits.messages), (3, 3));
    assert_eq!(here.memory.unexpected, 3 * (100 + 64));
    assert_eq!(here.memory.unexpected_used, 3 * CREDIT_COST as u64);
    assert!(here.memory.ledger > 0 && here.memory.early_limit > 0);
    let there = gauges(&mut rig, client);
    assert_eq!(
        (there.sends.credit_stalls, there.sends.without_credits),
        (1, 1)
    );
    assert_eq!(
        (there.sends.ticket_stalls, there.sends.without_ticket),
        (0, 0)
    );
    assert_eq!((there.queues.peers, there.queues.operations), (1, 2));

    let borrower = peer(&mut rig, server, client);
    assert_eq!(borrower.state, Name::Ready);
    let account = borrower.account.unwrap();
    assert_eq!((account.loan, account.waiting, account.free()), (3, 3, 0));
    let lender = peer(&mut rig, client, server);
    assert!(lender.limits_us && lender.without_credits);
    assert_eq!((lender.queued_unexpected, lender.queued_sends), (2, 0));
    let lent = lender.borrower.unwrap();
    assert_eq!((lent.free(), lent.used()), (0, 3));

    rig.host(server).fetching = true;
    rig.run("all of them", |rig| rig.peek(server).got.len() == 5);
    rig.run_for(Duration::from_millis(10));
    let here = gauges(&mut rig, server);
    assert_eq!((here.queues.ready, here.memory.unexpected), (0, 0));
    assert_eq!(here.memory.unexpected_used, 0);
    let there = gauges(&mut rig, client);
    assert!((1..=2).contains(&there.sends.credit_stalls), "{there:?}");
    assert_eq!(
        (there.sends.without_credits, there.queues.operations),
        (0, 0)
    );
}

#[test]
fn who_waits_no_more_is_not_counted_whatever_ended_it() {
    for (seed, end) in ["cancel", "time-out", "drop"].into_iter().enumerate() {
        let mut rig = Rig::new(10 + seed as u64);
        let credits = &mut rig.settings.credits;
        (credits.initial, credits.minimum, credits.maximum) = (1, 1, 1);
        rig.settings.unexpected_timeout = (end == "time-out").then_some(Duration::from_millis(50));
        let (server, client) = server_and_client(&mut rig);
        let labels: Vec<_> = (0..3)
            .map(|tag| rig.host(client).send_unexpected(server, tag, b"x"))
            .collect();
        assert_eq!(gauges(&mut rig, client).sends.without_credits, 1, "{end}");
        match end {
            "cancel" => {
                for label in &labels[1..] {
                    rig.host(client).cancel(*label);
                }
            }
            "time-out" => rig.run_for(Duration::from_millis(200)),
            _ => {
                let addr = rig.peek(client).addr(server);
                rig.host(client).drop_addr(addr);
            }
        }
        let sends = gauges(&mut rig, client).sends;
        assert_eq!(
            (sends.credit_stalls, sends.without_credits),
            (1, 0),
            "{end}"
        );
    }
}

#[test]
fn messages_that_wait_at_the_endpoint_and_peers_that_are_gone_are_seen() {
    let mut rig = Rig::new(3);
    let (server, client) = server_and_client(&mut rig);
    rig.host(client).send(server, 1, &[7; 1000]);
    rig.host(client).send_unexpected(server, 2, &[7; 1000]);
    rig.run_for(Duration::from_millis(10));
    let here = gauges(&mut rig, server);
    assert_eq!((here.memory.early, here.queues.ready), (1000, 1));
    assert!(here.memory.early_used >= 1000);
    assert_eq!(here.credits.estates, 0);
    rig.kill(client);
    rig.run("the loss", |rig| {
        peer(rig, server, client).account.is_none()
    });
    let here = gauges(&mut rig, server);
    assert_eq!((here.credits.estates, here.credits.peers), (4, 0));
    assert_eq!(peer(&mut rig, server, client).state, Name::Init);
    rig.host(server).fetching = true;
    rig.run("the message", |rig| rig.peek(server).got.len() == 1);
    let here = gauges(&mut rig, server);
    assert_eq!((here.credits.estates, here.memory.unexpected_used), (0, 0));
}

#[test]
fn an_empty_bank_is_told_once_by_the_server() {
    collect_warnings();
    let mut rig = Rig::new(4);
    rig.settings.limit_unexpected(64 << 10, 1 << 14);
    let (server, client) = server_and_client(&mut rig);
    assert_eq!(warnings_of("MX_"), [""; 0]);
    for round in 0..3 {
        for tag in 0..300 {
            rig.host(client).send_unexpected(server, tag, b"x");
        }
        rig.run_for(Duration::from_millis(50));
        assert_eq!(gauges(&mut rig, client).sends.without_credits, 1);
        let told = warnings_of("BMI_MX_UNEXPECTED_MEMORY=65536");
        assert_eq!(told.len(), 1, "round {round}: {told:?}");
        assert!(told[0].contains("no credits are left"), "{told:?}");
        rig.host(server).fetching = true;
        let all = 300 * (round + 1);
        rig.run("all of them", |rig| rig.peek(server).got.len() == all);
        rig.host(server).fetching = false;
    }
    assert_eq!(warnings_of("MX_").len(), 1);
    // Another life tells it again.
    rig.kill(server);
    rig.restart(server, Profile::default());
    rig.peek(server).fetching = false;
    rig.run("the loss", |rig| {
        peer(rig, client, server).state == Name::Init
    });
    for tag in 0..300 {
        rig.host(client).send_unexpected(server, tag, b"x");
    }
    rig.run_for(Duration::from_millis(50));
    assert_eq!(warnings_of("BMI_MX_UNEXPECTED_MEMORY=65536").len(), 2);
}

#[test]
fn a_send_that_waits_for_a_ticket_is_counted_and_told_once() {
    collect_warnings();
    let mut rig = Rig::new(5);
    rig.settings.send_tickets = 16;
    // What comes early is soon too much for the server.
    rig.endpoint.unexpected_bytes = 64 << 10;
    let (server, client) = server_and_client(&mut rig);
    for tag in 0..400 {
        rig.host(client).send(server, tag, &[1; 4000]);
    }
    rig.run_for(Duration::from_millis(10));
    let sends = gauges(&mut rig, client).sends;
    assert_eq!((sends.without_ticket, sends.tickets), (1, 16));
    // One peer gets as many as it leaves free.
    assert!(sends.ticket_stalls > 0, "{sends:?}");
    assert!((1..=16).contains(&sends.tickets_out), "{sends:?}");
    assert!(peer(&mut rig, client, server).without_ticket);
    assert_eq!(warnings_of("BMI_MX_SEND_TICKETS=16").len(), 1);
    for tag in 0..400 {
        rig.host(server).recv(client, tag, 4000);
    }
    rig.run("all of them", |rig| {
        rig.peek(client).outstanding().is_empty()
    });
    let sends = gauges(&mut rig, client).sends;
    assert_eq!((sends.without_ticket, sends.credit_stalls), (0, 0));
    assert_eq!(warnings_of("BMI_MX_SEND_TICKETS=16").len(), 1);
}

#[test]
fn a_peer_that_knows_no_credits_and_is_held_is_told_once() {
    collect_warnings();
    let mut rig = Rig::new(6);
    rig.settings.credits.fixed = 40;
    let (server, _) = server_and_client(&mut rig);
    let (old, id) = old_peer(&mut rig, server, None);
    for round in 0..2 {
        for tag in 0..100 {
            let unexpected = bits(MessageType::Unexpected, id, tag);
            rig.stranger(old).send(unexpected.0, &[1; 300]);
        }
        rig.run_for(Duration::from_millis(50));
        let here = gauges(&mut rig, server);
        assert_eq!((here.credits.others, here.queues.held_peers), (1, 1));
        assert_eq!((here.queues.ready, here.credits.drawn), (20, 40));
        let told = warnings_of("BMI_MX_CREDITS_FIXED=40");
        assert_eq!(told.len(), 1, "round {round}: {told:?}");
        rig.host(server).fetching = true;
        let all = 100 * (round + 1);
        rig.run("all of them", |rig| rig.peek(server).got.len() == all);
        rig.host(server).fetching = false;
    }
}

#[test]
fn unpaid_messages_are_told_once_and_counted() {
    collect_warnings();
    let mut rig = Rig::new(7);
    rig.settings.credits.strikes = 9;
    let (server, _) = server_and_client(&mut rig);
    let (liar, id) = old_peer(&mut rig, server, Some(64));
    for tag in 0..5 {
        let unexpected = bits(MessageType::Unexpected, id, tag);
        rig.stranger(liar).send(unexpected.0, &[1; 100_000]);
    }
    rig.run_for(Duration::from_millis(50));
    let here = gauges(&mut rig, server);
    assert_eq!(
        (here.credits.unpaid, here.queues.dropped),
        (5, 5),
        "{here:?}"
    );
    assert_eq!((here.credits.strikes, here.credits.failed), (5, 0));
    assert_eq!(warnings_of("BMI_MX_CREDITS_STRIKES=9").len(), 1);
}

#[test]
fn memory_that_is_nearly_used_up_is_told_once_for_each_class() {
    collect_warnings();
    let mut rig = Rig::new(8);
    rig.settings.limit_unexpected(320 * 1000, 1 << 14);
    rig.settings.credits.fixed = 2000;
    rig.endpoint.unexpected_bytes = 1 << 20;
    let server = rig.add(Profile::default());
    rig.peek(server).fetching = false;
    let (old, id) = old_peer(&mut rig, server, None);
    let send = |rig: &mut Rig, count: u32| {
        for tag in 0..count {
            let unexpected = bits(MessageType::Unexpected, id, tag);
            rig.stranger(old).send(unexpected.0, b"x");
        }
        rig.run_for(Duration::from_millis(50));
    };
    send(&mut rig, 900);
    let here = gauges(&mut rig, server);
    assert_eq!(here.memory.unexpected_used, 900 * CREDIT_COST as u64);
    assert_eq!(warnings_of("BMI_MX_UNEXPECTED_MEMORY"), [""; 0]);
    for _ in 0..2 {
        send(&mut rig, 1);
        let told = warnings_of("BMI_MX_UNEXPECTED_MEMORY=320000");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("nine tenths"), "{told:?}");
    }
    assert_eq!(warnings_of("MX_").len(), 1);
    // Messages for receives that are not posted, of as many peers as it takes.
    let mut clients = Vec::new();
    assert_eq!(warnings_of("MX_UNEXPECTED_BYTES"), [""; 0]);
    while gauges(&mut rig, server).memory.early_used <= (1 << 20) / 80 * 63 {
        let client = rig.add(Profile::default());
        rig.introduce(client, server);
        clients.push(client);
        assert!(clients.len() < 200, "{:?}", gauges(&mut rig, server).memory);
        for client in &clients {
            for tag in 0..20 {
                rig.host(*client).send(server, tag, &[1; 4000]);
            }
        }
        rig.run_for(Duration::from_millis(20));
    }
    for _ in 0..2 {
        rig.run_for(Duration::from_millis(20));
        let told = warnings_of("MX_UNEXPECTED_BYTES=1048576");
        assert_eq!(told.len(), 1, "{told:?}");
    }
    assert_eq!(warnings_of("BMI_MX_UNEXPECTED_MEMORY").len(), 1);
}
