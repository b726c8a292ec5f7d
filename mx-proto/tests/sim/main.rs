//! Endpoints and ports on the simulated network, as one program, so that shared code is compiled
//! once.

mod at_once;
mod data_links;
mod endpoint;
mod every_step;
mod explore;
mod flow;
mod fronts;
mod goodput;
mod introductions;
mod large;
mod liveness;
mod moves;
mod order;
mod ports;
mod regions;
mod rig;
mod roaming;
mod sources;
mod stage;
