//! All state of a fabric, behind one lock.
//!
//! ```text
//!   offers[]  machines[]
//!   fabrics > domains > queues, vectors, endpoints, regions     by Id, never reused
//!   operations   by serial number: memory and contexts lent to the provider
//!   channels     (to, from): messages posted and not arrived
//!   links        {a, b}: connected or not
//! ```
//!
//! Owns: the objects' records.
//! Out of scope: C.
//!
//! All maps are ordered, so equal seeds and calls give equal runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_void;
use std::sync::{Arc, Weak};

use libc::c_int;
use libfabric_sys::abi::*;

use crate::checker::{Span, Stats};
use crate::division::Cuts;
use crate::endpoint::Endpoint;
use crate::faults::{Call, Death, Faults};
use crate::memory::Region;
use crate::objects::{self, Id, Owned, Shared, class_name};
use crate::queue::Queue;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::vector::Vector;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) me: Weak<Shared>,
    pub(crate) offers: Vec<Arc<Shape>>,
    pub(crate) machines: Vec<MachineRecord>,
    pub(crate) faults: Faults,
    pub(crate) rng: Rng,
    /// All violations, in order.
    pub(crate) violations: Vec<String>,
    pub(crate) stats: Stats,

    last: Id,
    open: BTreeMap<Id, Opened>,
    bodies: Vec<Owned>,
    /// Keeps the fabric while objects are open, even without a handle.
    keep: Option<Arc<Shared>>,

    pub(crate) fabrics: BTreeMap<Id, Fabric>,
    pub(crate) domains: BTreeMap<Id, Domain>,
    pub(crate) queues: BTreeMap<Id, Queue>,
    pub(crate) vectors: BTreeMap<Id, Vector>,
    pub(crate) endpoints: BTreeMap<Id, Endpoint>,
    pub(crate) regions: BTreeMap<Id, Region>,
    /// Closed registrations that providers keep, see `Shape::mr_cache`.
    pub(crate) cached: Vec<Region>,

    pub(crate) serial: u64,
    pub(crate) operations: BTreeMap<u64, Operation>,
    pub(crate) channels: BTreeMap<(Id, Id), VecDeque<Message>>,
    pub(crate) links: BTreeMap<(Id, Id), Link>,
    /// Links that are not up yet.
    pub(crate) connecting: Vec<(Id, Id)>,
    /// Addresses of killed and closed endpoints, with the peers' view of them.
    pub(crate) graves: BTreeMap<Vec<u8>, Death>,
    pub(crate) cuts: Cuts,
    /// Number of endpoints so far, for addresses.
    pub(crate) addresses: u32,
}

/// A process or machine, and whether it is alive.
pub(crate) struct MachineRecord {
    /// Names of its providers; `None` for all.
    pub(crate) providers: Option<Vec<String>>,
    /// Devices that are removed at the moment.
    pub(crate) removed: BTreeSet<usize>,
}

/// An open object and its domain.
pub(crate) struct Opened {
    class: usize,
    domain: Option<Id>,
}

pub(crate) struct Fabric {
    pub(crate) machine: usize,
    pub(crate) offer: usize,
}

pub(crate) struct Domain {
    pub(crate) fabric: Id,
    pub(crate) machine: usize,
    pub(crate) offer: usize,
    pub(crate) device: usize,
    pub(crate) shape: Arc<Shape>,
    pub(crate) mr_mode: c_int,
    pub(crate) dead: bool,
    /// Keys that were valid once: their use is late, not a violation.
    pub(crate) closed_keys: Vec<u64>,
}

/// The kind of a posted operation.
pub(crate) enum What {
    Receive(Option<Multi>),
    Send,
    Read,
}

/// A buffer for several messages.
pub(crate) struct Multi {
    pub(crate) used: usize,
    pub(crate) least: usize,
    pub(crate) landing: usize,
    /// No more messages fit: returned once nothing is landing.
    pub(crate) full: bool,
}

/// A posted operation, until its completion was read or its endpoint was closed.
pub(crate) struct Operation {
    pub(crate) ep: Id,
    pub(crate) what: What,
    pub(crate) context: usize,
    /// Bytes of the context in use, which the fake has filled with a pattern.
    pub(crate) scribbled: usize,
    pub(crate) spans: Vec<Span>,
    pub(crate) descs: Vec<usize>,
    /// Checksum of a send's bytes, without the prefix.
    pub(crate) sum: u64,
    /// A pattern in a posted receive that only the provider may overwrite.
    pub(crate) canary: Option<Span>,
    /// Whether the completion is queued.
    pub(crate) done: bool,
}

impl Operation {
    pub(crate) fn new(
        ep: Id,
        what: What,
        context: usize,
        spans: Vec<Span>,
        descs: Vec<usize>,
    ) -> Self {
        Self {
            ep,
            what,
            context,
            scribbled: 0,
            spans,
            descs,
            sum: 0,
            canary: None,
            done: false,
        }
    }

    pub(crate) fn writes(&self) -> bool {
        !matches!(self.what, What::Send)
    }
}

/// A message in flight.
pub(crate) struct Message {
    pub(crate) from: Id,
    pub(crate) source: Vec<u8>,
    /// Length without the prefix.
    pub(crate) len: usize,
    pub(crate) body: MessageBody,
    /// Send that completes with the delivery.
    pub(crate) sender: Option<u64>,
}

pub(crate) enum MessageBody {
    Copied(Vec<u8>),
    /// Still in the memory of the operation `sender`.
    Lent,
}

/// A pair of endpoints, in the order of their ids.
pub(crate) struct Link {
    pub(crate) polls: [u32; 2],
    pub(crate) up: bool,
}

impl State {
    pub(crate) fn new(me: Weak<Shared>, offers: Vec<Arc<Shape>>, seed: u64) -> Self {
        Self {
            me,
            offers,
            rng: Rng::new(seed),
            ..Self::default()
        }
    }

    /// Returns an open endpoint.
    pub(crate) fn ep(&mut self, id: Id) -> &mut Endpoint {
        self.endpoints.get_mut(&id).expect("an open endpoint")
    }

    pub(crate) fn violation(&mut self, text: String) {
        // A test that breaks one rule breaks it often.
        if self.violations.len() < 200 {
            self.violations.push(text);
        }
    }

    /// Records a violation of a call, and returns the call's error.
    pub(crate) fn violated(&mut self, error: c_int, text: impl Into<String>) -> isize {
        self.violation(text.into());
        objects::code(error)
    }

    /// Returns the injected error of a call.
    pub(crate) fn refused(&self, call: Call) -> Option<isize> {
        self.faults
            .refuse
            .get(&call)
            .map(|error| objects::code(*error))
    }

    /// Makes the object that users hold; the caller makes its record.
    pub(crate) fn opened(
        &mut self,
        class: usize,
        domain: Option<Id>,
        context: *mut c_void,
    ) -> (Id, *mut c_void) {
        self.last += 1;
        let id = self.last;
        let owned = objects::new(self.me.clone(), id, class, context);
        let pointer = owned.pointer();
        self.bodies.push(owned);
        self.open.insert(id, Opened { class, domain });
        if self.keep.is_none() {
            self.keep = self.me.upgrade();
        }
        (id, pointer)
    }

    /// Ends an object. Its body stays, to notice late calls.
    pub(crate) fn closed(&mut self, id: Id) {
        self.open.remove(&id);
        self.fabrics.remove(&id);
        self.domains.remove(&id);
        self.queues.remove(&id);
        self.vectors.remove(&id);
        self.endpoints.remove(&id);
        self.regions.remove(&id);
        self.cached.retain(|region| region.domain != id);
        if self.open.is_empty() {
            // The caller holds a handle of its own, so this does not drop a lock that is held.
            self.keep = None;
        }
    }

    pub(crate) fn is_open(&self, id: Id) -> bool {
        self.open.contains_key(&id)
    }

    /// Returns true if the object's domain is dead.
    pub(crate) fn is_dead(&self, id: Id) -> bool {
        let domain = self.open.get(&id).and_then(|opened| opened.domain);
        let domain = self.domains.get(&domain.unwrap_or(id));
        domain.is_some_and(|domain| domain.dead)
    }

    /// Returns open objects that prevent this one from closing.
    pub(crate) fn users(&self, id: Id, class: usize) -> Vec<String> {
        self.open_objects(|other, opened| match (class, opened.class) {
            (FI_CLASS_FABRIC, FI_CLASS_DOMAIN) => self.domains[&other].fabric == id,
            (FI_CLASS_DOMAIN, _) => opened.domain == Some(id),
            (FI_CLASS_CQ | FI_CLASS_AV, FI_CLASS_EP) => {
                let ep = &self.endpoints[&other];
                [ep.transmit, ep.receive, ep.vector].contains(&Some(id))
            }
            // If operations also use registrations, only the endpoint's end can end those, so
            // closing it first must be possible. No known provider requires both.
            (FI_CLASS_EP, FI_CLASS_MR) => {
                let local = self.domain(id).mr_mode & FI_MR_LOCAL != 0;
                !local && self.regions[&other].ep == Some(id)
            }
            _ => false,
        })
    }

    /// Returns the names of open objects.
    pub(crate) fn open_objects(&self, wanted: impl Fn(Id, &Opened) -> bool) -> Vec<String> {
        let open = self.open.iter().filter(|(id, opened)| wanted(**id, opened));
        open.map(|(id, opened)| format!("{} {id}", class_name(opened.class)))
            .collect()
    }

    /// Returns the domain of an open object, or the object itself.
    pub(crate) fn domain(&self, id: Id) -> &Domain {
        let domain = self.open.get(&id).and_then(|opened| opened.domain);
        &self.domains[&domain.unwrap_or(id)]
    }

    /// Returns the holders of a span of memory.
    pub(crate) fn holders(&self, of: Span) -> Vec<String> {
        let operations = self.operations.iter().filter_map(|(serial, operation)| {
            // A registration's memory can be accessed only while it is open.
            let reached = |desc: usize| desc == 0 || self.valid().any(|region| region.desc == desc);
            let mut parts = operation.spans.iter().zip(&operation.descs);
            let lent =
                !operation.done && parts.any(|(span, desc)| span.overlaps(of) && reached(*desc));
            lent.then(|| format!("operation {serial} of endpoint {}", operation.ep))
        });
        let regions = self.regions.iter().filter_map(|(id, region)| {
            let lent = region.span.overlaps(of);
            lent.then(|| format!("registration {id}"))
        });
        let cached = self.cached.iter().filter(|region| region.span.overlaps(of));
        let cached =
            cached.map(|region| format!("a registration with key {:#x}, closed", region.key));
        operations.chain(regions).chain(cached).collect()
    }
}
