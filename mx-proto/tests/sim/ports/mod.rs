//! Ports without an endpoint: numbered packets go both ways, and each must arrive once, whole and
//! in order, or the link must report its end.
//!
//! ```text
//!   Peer --- numbered packets of random sizes ---> Peer      over Reliable on faulty links
//!        <----------------------------------------
//! ```

mod attacks;
mod deaths;
mod faults;
mod path;
mod peer;
mod sessions;
mod strangers;

use mx_proto::EndpointId;
use mx_proto::reliability::{Reliable, ReliableConfig, ReliableStats};
use mx_sim::scenario::key;
use mx_sim::{Cluster, DatagramNet, NodeId, Rng, SimDatagrams};
use peer::{NIC, Peer};

pub(crate) type ReliablePeer = Reliable<SimDatagrams>;

pub(crate) fn reliable(
    net: &DatagramNet,
    node: NodeId,
    config: ReliableConfig,
    life: u64,
) -> ReliablePeer {
    let name = EndpointId(node as u32);
    let datagrams = SimDatagrams::open(net, node, NIC, name).expect("a free name");
    Reliable::new(
        datagrams,
        config,
        key(&mut Rng::new(life << 32 | node as u64)),
    )
}

pub(crate) fn totals(cluster: &mut Cluster<Peer<ReliablePeer>>) -> ReliableStats {
    let mut sum = ReliableStats::default();
    for id in 0..cluster.len() {
        let stats = *cluster.node(id).expect("alive").port.stats();
        sum.resent += stats.resent;
        sum.duplicates += stats.duplicates;
        sum.damaged += stats.damaged;
        sum.outside_window += stats.outside_window;
        sum.bad_acks += stats.bad_acks;
        sum.malformed += stats.malformed;
        sum.datagrams_out += stats.datagrams_out;
        sum.black_holes += stats.black_holes;
    }
    sum
}
