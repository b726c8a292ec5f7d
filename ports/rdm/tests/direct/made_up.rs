//! Simulated providers, of hardware that this machine does not have.

use super::nodes::Nodes;
use libfabric_fake::{Fake, Shape};
use mx_port_rdm::RdmOptions;
use mx_proto::Config;

/// Returns shapes of each kind of provider.
pub(crate) fn shapes() -> [Shape; 7] {
    [
        Shape::tcp(),
        Shape::tcp_rxm(),
        Shape::verbs_rxm(),
        Shape::cxi(),
        Shape::psm3(),
        Shape::efa(),
        Shape::odd(),
    ]
}

/// Makes nodes over a simulated provider.
pub(crate) fn nodes(fake: &Fake, count: usize) -> Nodes {
    nodes_with(fake, count, RdmOptions::default())
}

/// Makes nodes with other options.
pub(crate) fn nodes_with(fake: &Fake, count: usize, options: RdmOptions) -> Nodes {
    let options = RdmOptions {
        library: Some(fake.library()),
        ..options
    };
    Nodes::over(count, Config::default(), options).expect("the fake is always there")
}
