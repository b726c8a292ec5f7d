#![forbid(unsafe_code)]
//! A network in one thread in which every event follows from a seed.
//!
//! ```text
//!   Cluster -- runs --> nodes: any type that implements Drive (an Endpoint with an application,
//!      |                 |      the whole BMI method, ...)
//!      |                 v
//!      |        SimPort (reliable)          mx_proto::reliability::Reliable over SimDatagrams
//!      |                 |                               |
//!      |              Fabric                        DatagramNet: Links, Bottlenecks, Mailboxes
//!      v                 v                               v
//!    World: virtual clock, agenda ordered by (time, order of entry), chance, log
//! ```
//!
//! The crate also contains fixtures for port tests: the clock, memory that detects forbidden
//! accesses ([`Buffer`]) or has several pieces ([`Pieces`]), sinks ([`Recorder`], [`Ear`]),
//! datagrams built by hand ([`datagram::header`]), and the log ([`log_lines()`]).
//!
//! [`scenario`] runs nodes on any network; ports of other crates can join in. [`explore`] leaves
//! nothing to chance: it makes every order of a few steps. On a [`ScriptedNet`] a test chooses
//! every event itself.
//!
//! Everything is generic over the memory type, and clocks are handles that can be cloned, so that
//! any layer above a port can use it. Nothing sleeps or reads a real clock; equal seeds give equal
//! runs. A failing run prints its log and `SIM_SEED=n`, which repeats it.

pub mod aside;
pub mod buffer;
pub mod calling_off;
pub mod check;
pub mod clock;
pub mod cluster;
pub mod datagram;
pub mod ear;
pub mod explore;
pub mod fabric;
pub mod fronts;
pub mod golden;
pub mod home;
pub mod hostile;
pub mod link;
pub mod log_lines;
pub mod node;
pub mod owner;
pub mod port;
pub mod profile;
pub mod queue;
pub mod recorder;
pub mod rng;
pub mod scenario;
pub mod script;
pub mod seeds;
pub mod sink;
pub mod trace;
pub mod world;

pub use aside::{aside, is_aside};
pub use buffer::{Buffer, Pieces};
pub use calling_off::{CallOff, Cancelled};
pub use check::Book;
pub use clock::VirtualClock;
pub use cluster::{Cluster, Drive};
pub use datagram::{DatagramNet, SimAddress, SimDatagrams, Terms};
pub use ear::{Ear, Hearing};
pub use fabric::Fabric;
pub use home::Home;
pub use link::{Faults, Link};
pub use log_lines::log_lines;
pub use node::{Habits, Mood, Node};
pub use owner::{Completion, Queue, Reports, Verdicts};
pub use port::SimPort;
pub use profile::{Profile, SimFabric};
pub use recorder::{Recorder, SinkCall, header_of};
pub use rng::Rng;
pub use script::{Script, ScriptedNet, ScriptedPort};
pub use sink::{Polled, Sink, tell_all};
pub use world::{NodeId, World};
