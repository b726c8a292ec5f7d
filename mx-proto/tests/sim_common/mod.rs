//! Networks that several tests run the same things on.

use mx_proto::EndpointId;
use mx_proto::port::Port;
use mx_proto::reliability::{Reliable, ReliableConfig};
use mx_sim::node::NIC;
use mx_sim::{Buffer, DatagramNet, Fabric, Faults, NodeId, Profile, Rng, SimDatagrams, SimPort};

/// A network of either kind, as far as chaos is concerned.
pub(crate) trait Network {
    type Port: Port<Buffer>;

    fn open(&mut self, node: NodeId) -> Self::Port;
    fn cut(&self, a: NodeId, b: NodeId);
    fn heal(&self, a: NodeId, b: NodeId);
    fn reset(&self, a: NodeId, b: NodeId);
    /// The node's power fails; its port is dropped right after.
    fn power_off(&self, node: NodeId);
    /// From now on nothing goes wrong any more.
    fn calm(&self);
}

/// [`SimPort`]s on a [`Fabric`].
pub(crate) struct Reliably {
    pub(crate) fabric: Fabric<Buffer>,
    pub(crate) profile: Profile,
}

impl Network for Reliably {
    type Port = SimPort<Buffer>;

    fn open(&mut self, node: NodeId) -> Self::Port {
        let name = EndpointId(node as u32);
        SimPort::open(&self.fabric, node, NIC, name, self.profile).expect("a free name")
    }

    fn cut(&self, a: NodeId, b: NodeId) {
        self.fabric.cut(a, b);
    }

    fn heal(&self, a: NodeId, b: NodeId) {
        self.fabric.heal(a, b);
    }

    fn reset(&self, a: NodeId, b: NodeId) {
        self.fabric.reset_links(a, b);
    }

    fn power_off(&self, node: NodeId) {
        self.fabric.power_off(node);
    }

    fn calm(&self) {}
}

/// [`Reliable`] ports on a [`DatagramNet`].
pub(crate) struct Unreliably {
    pub(crate) net: DatagramNet,
    pub(crate) config: ReliableConfig,
    pub(crate) faults: Faults,
    pub(crate) rng: Rng,
}

impl Network for Unreliably {
    type Port = Reliable<SimDatagrams>;

    fn open(&mut self, node: NodeId) -> Self::Port {
        let name = EndpointId(node as u32);
        let datagrams = SimDatagrams::open(&self.net, node, NIC, name).expect("a free name");
        Reliable::new(datagrams, self.config, self.rng.bits())
    }

    fn cut(&self, a: NodeId, b: NodeId) {
        self.net.set_cut(a, b, true);
    }

    fn heal(&self, a: NodeId, b: NodeId) {
        self.net.set_cut(a, b, false);
    }

    fn reset(&self, _: NodeId, _: NodeId) {}

    fn power_off(&self, _: NodeId) {}

    fn calm(&self) {
        self.net.set_refuse(0.0);
        self.net.set_faults(Faults {
            bandwidth: None,
            ..self.faults
        });
    }
}
