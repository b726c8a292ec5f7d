//! The simulator's own networks, as scenarios want them.

use super::Network;
use crate::node::NIC;
use crate::{
    Buffer, DatagramNet, Fabric, Faults, NodeId, Profile, Rng, SimDatagrams, SimPort, Terms, World,
};
use mx_proto::EndpointId;
use mx_proto::reliability::{Reliable, ReliableConfig};

/// [`SimPort`]s on a [`Fabric`].
pub struct Reliably {
    /// The network between them.
    pub fabric: Fabric<Buffer>,
    /// The behaviour of all of them.
    pub profile: Profile,
}

impl Reliably {
    /// A network with these ports; `share` as in [`Fabric::new`].
    pub fn new(world: &World, share: bool, profile: Profile) -> Self {
        world.note(0, format!("{profile:?}"));
        let share = share.then_some(Buffer::share as fn(&Buffer) -> Buffer);
        let fabric = Fabric::new(world, share);
        Self { fabric, profile }
    }
}

impl Network for Reliably {
    type Port = SimPort<Buffer>;

    fn open(&mut self, node: NodeId) -> Self::Port {
        let name = self.fabric.world().number(node);
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
pub struct Unreliably {
    /// The network between them.
    pub net: DatagramNet,
    /// Configuration of all ports.
    pub config: ReliableConfig,
    /// The faults until all is calm; its bandwidth limit ends then.
    pub faults: Faults,
    /// Draws keys.
    pub rng: Rng,
}

impl Unreliably {
    /// A network with these terms.
    pub fn new(world: &World, terms: Terms, config: ReliableConfig, rng: Rng) -> Self {
        world.note(0, format!("{terms:?} {config:?}"));
        Self {
            net: DatagramNet::new(world, terms),
            config,
            faults: terms.faults,
            rng,
        }
    }
}

impl Network for Unreliably {
    type Port = Reliable<SimDatagrams>;

    fn open(&mut self, node: NodeId) -> Self::Port {
        let name = EndpointId(node as u32);
        let datagrams = SimDatagrams::open(&self.net, node, NIC, name).expect("a free name");
        Reliable::new(datagrams, self.config, key(&mut self.rng))
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
        self.net.change(|terms| terms.refuse = 0.0);
        self.net.set_faults(Faults {
            bandwidth: None,
            ..self.faults
        });
    }
}

/// Draws the key of a port's cookies.
pub fn key(rng: &mut Rng) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&rng.bits().to_le_bytes());
    key[8..].copy_from_slice(&rng.bits().to_le_bytes());
    key
}
