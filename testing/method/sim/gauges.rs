//! Gauges of a method with lent and missing credits, on the simulated network.

use crate::rig::Rig;
use bmi_method::method::{MethodReport, PeerGauges};
use bmi_method::peer::state::StateName;
use mx_proto::flow::CREDIT;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::time::Duration;

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

/// Returns the gauges of `of` for its peer `node`.
fn peer(rig: &mut Rig, of: NodeId, node: NodeId) -> PeerGauges {
    let host = rig.peek(of);
    let addr = host.addr(node).as_ptr();
    let key = host.method.peers().of_addr(addr).unwrap();
    host.method.peer_gauges(key)
}

#[test]
fn sender_short_of_credits_is_visible_on_both_sides() {
    let mut rig = Rig::new(1);
    rig.lend(3);
    let (server, client) = server_and_client(&mut rig);
    for tag in 0..6 {
        rig.host(client).send_unexpected(server, tag, &[1; 100]);
    }
    rig.run_for(Duration::from_millis(10));
    let here = report(&mut rig, server);
    // Three with credits, and one in the slot.
    assert_eq!((here.flow.remotes, here.flow.lent), (1, 3));
    assert_eq!((here.inbox.messages, here.inbox.bytes), (4, 400));
    assert_eq!(here.usage.0, 3 * CREDIT as u64);
    let there = report(&mut rig, client);
    assert!(there.credit_stalls > 0, "{there:?}");
    assert_eq!((there.stalled, there.operations), (1, 2));

    let borrower = peer(&mut rig, server, client);
    assert_eq!((borrower.state, borrower.pending), (StateName::Ready, 0));
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
