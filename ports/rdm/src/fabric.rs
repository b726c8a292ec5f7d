//! An opened domain and all its objects.
//!
//! ```text
//!   remote   registrations -----------.
//!   slots    memory + registrations --+--> main endpoint --> domain (queue, addresses) --> memory
//!   receive  memory + registrations --'
//!                                          closed from left to right, memory last
//! ```
//!
//! If a provider fails, or keeps memory it must not keep, all of this is dropped and opened anew;
//! the links go down.
//!
//! Owns: libfabric's objects and their memory.
//! Out of scope: links beyond their names, the endpoint.

use super::addresses::Addresses;
use super::bounce::BounceBuffers;
use super::frame::{FRAME_LEN, Frame, FrameKind};
use super::links::{Link, Peer};
use super::ops::{Op, Ops};
use super::plan::Plan;
use super::provider::Choice;
use super::reading::Reading;
use super::receive::Receive;
use super::remote::{PortContext, Remote};
use super::slots::Slots;
use libfabric_sys::Library;
use mx_port_fabric::RdmError;
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_port_fabric::{CqEvent, Domain, Ep, FabricError, Role};
use mx_proto::LinkId;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Everything opened. The order of the members is that in which they go: all memory that a provider
/// may have been given, contexts included, comes after what was opened, also after what would not be
/// closed at once.
pub(super) struct Fabric {
    /// `None` where the provider has no real RMA.
    pub(super) remote: Option<Remote>,
    pub(super) main: Option<Ep>,
    pub(super) domain: Domain,
    pub(super) slots: Slots,
    pub(super) receive: Receive,
    pub(super) bounce: BounceBuffers,
    pub(super) ops: Ops,
    pub(super) addresses: Addresses,
    /// The paths of messages.
    plan: Plan,
    /// Signs of life that wait for their link.
    pub(super) out: VecDeque<(LinkId, Reading)>,
    /// Events that have been read and not been handled, some of them out of turn by `remote`.
    pub(super) backlog: VecDeque<CqEvent>,
    /// Links that have gone while the provider had slots of theirs: their address and how many.
    tombstones: HashMap<LinkId, (u64, u32)>,
    /// There are too many tombstones.
    clogged: bool,
    /// Buffer in which frames to be injected are put together.
    scratch: Vec<u8>,
}

/// Reasons why a frame was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    /// No room now.
    Busy,
    /// The provider will not send to that peer: its error number.
    Failed(i32),
}

/// Number of small frames of which one takes a slot. What is injected has no completion, and `tcp` takes any
/// number for a peer that does not read; a slot that does not come back is the end of that.
const INJECT_RUN: u16 = 32;

impl Fabric {
    /// Opens what has been chosen.
    pub(super) fn open(library: &Arc<Library>, choice: &Choice) -> Result<Self, RdmError> {
        let domain = Domain::open(Arc::clone(library), &choice.info, choice.plan.terms.clone())?;
        let main = domain.endpoint(Role::Main)?;
        let plan = &choice.plan;
        let receive = Receive::new(&domain, &main, plan)?;
        let mut fabric = Self {
            remote: Remote::new(plan),
            slots: Slots::new(
                plan.prefix() + plan.terms.frame_max,
                plan.mr_local,
                plan.terms.tx_depth,
            ),
            receive,
            bounce: BounceBuffers::default(),
            ops: Ops::default(),
            addresses: Addresses::default(),
            out: VecDeque::new(),
            backlog: VecDeque::new(),
            tombstones: HashMap::new(),
            clogged: false,
            scratch: vec![0; plan.prefix() + plan.terms.inject_max],
            main: Some(main),
            domain,
            plan: plan.clone(),
        };
        fabric
            .post_buffers()
            .map_err(|code| FabricError::new(library, "fi_recv", code))?;
        Ok(fabric)
    }

    /// Gives the provider every receive buffer it does not have.
    pub(super) fn post_buffers(&mut self) -> Result<(), i32> {
        match &self.main {
            Some(main) => self.receive.post(main, &mut self.ops),
            None => Ok(()),
        }
    }

    /// The peer of an endpoint address. The address is given back by [`Fabric::forget`]. `None`
    /// when the provider refuses it.
    pub(super) fn peer_of(&mut self, endpoint_address: &EndpointAddress) -> Option<Peer> {
        match self.addresses.take(&self.domain, &endpoint_address.address) {
            Ok(address) => Some(Peer::new(address, endpoint_address)),
            Err(error) => {
                log::debug!(
                    "the address of a peer on {}: {error}",
                    endpoint_address.provider
                );
                None
            }
        }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The largest frame, its header included.
    pub(super) fn frame_max(&self) -> usize {
        self.plan().terms.frame_max
    }

    /// A link can carry frames; `peer` is its address.
    pub(super) fn on_link_up(&mut self, link: LinkId, peer: u64) {
        if let Some(remote) = &mut self.remote {
            remote.on_link_up(link, peer);
        }
    }

    /// Lends `remote` what it needs.
    pub(super) fn remote(&mut self) -> Option<(&mut Remote, PortContext<'_>)> {
        let outlet = PortContext {
            domain: &self.domain,
            main: self.main.as_ref()?,
            ops: &mut self.ops,
            bounce: &mut self.bounce,
            out: &mut self.out,
            backlog: &mut self.backlog,
        };
        Some((self.remote.as_mut()?, outlet))
    }

    /// Sends a frame to the peer of `link`: `len` bytes of body that `fill` writes.
    #[inline]
    pub(super) fn send(
        &mut self,
        link: &mut Link,
        kind: FrameKind,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), NotSent> {
        let (Some(peer), Some(main)) = (link.peer, &self.main) else {
            return Err(NotSent::Busy);
        };
        let number = link.sequence.number();
        let plan = &self.plan;
        let (prefix, total) = (plan.prefix(), FRAME_LEN + len);
        debug_assert!(total <= plan.terms.frame_max, "a frame of {total} bytes");
        // What is injected does not say when it has left.
        let tracked = matches!(kind, FrameKind::Bye | FrameKind::Reset);
        let small = total <= plan.terms.inject_max && !tracked;
        if small && number % INJECT_RUN != INJECT_RUN - 1 {
            return self.inject(link, kind, total, fill);
        }
        if link.slots >= self.slots.allowance() && !tracked {
            return Err(NotSent::Busy);
        }
        let Some(slot) = self.slots.take(&self.domain, main, link.id) else {
            return if small {
                self.inject(link, kind, total, fill)
            } else {
                Err(NotSent::Busy)
            };
        };
        let slot_number = slot.number;
        let bytes = &mut slot.bytes[..prefix + total];
        write(&mut bytes[prefix..], (kind, number), &peer, fill);
        let context = self.ops.begin(Op::Send(slot_number));
        // SAFETY: the slot's memory is not touched before the completion, and outlives the
        // endpoint.
        let sent = unsafe {
            let memory = (bytes.as_ptr(), bytes.len());
            main.send(memory, slot.desc, peer.address, context, false)
        };
        if let Err(code) = sent {
            self.ops.end(context);
            self.slots.put(slot_number);
            return Err(NotSent::of(code));
        }
        link.slots += 1;
        link.sequence.sent();
        Ok(())
    }

    /// Sends a frame that the provider copies at once, and never speaks of again.
    #[inline]
    fn inject(
        &mut self,
        link: &mut Link,
        kind: FrameKind,
        total: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), NotSent> {
        let (Some(peer), Some(main)) = (link.peer, &self.main) else {
            return Err(NotSent::Busy);
        };
        let prefix = self.plan.prefix();
        let bytes = &mut self.scratch[..prefix + total];
        let head = (kind, link.sequence.number());
        write(&mut bytes[prefix..], head, &peer, fill);
        main.inject(bytes, peer.address).map_err(NotSent::of)?;
        link.sequence.sent();
        Ok(())
    }

    /// A slot has come back whose link is gone.
    pub(super) fn tombstone_returned(&mut self, owner: LinkId) {
        let Some((address, left)) = self.tombstones.get_mut(&owner) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            let address = *address;
            self.tombstones.remove(&owner);
            self.addresses.give(&self.domain, address);
        }
        self.count_tombstones();
    }

    /// A link has been taken out of the table: what it still has here is let go of. Its memory has
    /// been given back by `remote` already.
    pub(super) fn forget(&mut self, link: &Link) {
        self.out.retain(|(of, _)| *of != link.id);
        let Some(Peer { address, .. }) = link.peer else {
            return;
        };
        if link.slots > 0 {
            self.tombstones.insert(link.id, (address, link.slots));
            self.count_tombstones();
        } else {
            self.addresses.give(&self.domain, address);
        }
    }

    /// Dead peers' frames have taken up so much that the living suffer.
    pub(super) fn is_clogged(&self) -> bool {
        self.clogged
    }

    /// Slots with frames to peers that have gone.
    pub(super) fn lost_slots(&self) -> usize {
        let lost: u32 = self.tombstones.values().map(|(_, slots)| slots).sum();
        lost as usize
    }

    fn count_tombstones(&mut self) {
        let lost = self.lost_slots();
        self.clogged = self.slots.lose(lost);
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // Registrations for peers.
        self.remote = None;
        if !self.plan.terms.mr_endpoint {
            self.main = None;
        }
        // Registrations that belong to the endpoint are closed before it.
        self.slots.close_registrations();
        self.receive.close_registrations();
        self.main = None;
    }
}

impl NotSent {
    fn of(code: i32) -> Self {
        match code {
            libc::EAGAIN => Self::Busy,
            code => Self::Failed(code),
        }
    }
}

#[inline]
fn write(
    bytes: &mut [u8],
    (kind, number): (FrameKind, u16),
    peer: &Peer,
    fill: impl FnOnce(&mut [u8]),
) {
    let frame = Frame {
        kind,
        number,
        link: peer.link,
        cookie: peer.cookie,
    };
    let (head, body) = bytes.split_at_mut(FRAME_LEN);
    head.copy_from_slice(&frame.emit());
    fill(body);
}
