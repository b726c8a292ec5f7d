//! Open domain and all its objects.
//!
//! ```text
//!   remote   registrations -----------.
//!   slots    memory + registrations --+--> main endpoint --> domain (queue, addresses) --> memory
//!   receive  memory + registrations --'
//!                                          closed from left to right, memory last
//! ```
//!
//! If a provider fails, or keeps memory that it must return, all of this is dropped and reopened; the links go down.
//!
//! Owns: libfabric's objects and their memory.
//! Out of scope: links beyond their ids, the endpoint.

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

/// All open objects. The fields are dropped in order: all memory that a provider may use, contexts included, comes
/// after the objects, including those that fail to close at once.
pub(super) struct Fabric {
    /// `None` if the provider has no real RMA.
    pub(super) remote: Option<Remote>,
    pub(super) main: Option<Ep>,
    pub(super) domain: Domain,
    pub(super) slots: Slots,
    pub(super) receive: Receive,
    pub(super) bounce: BounceBuffers,
    pub(super) ops: Ops,
    pub(super) addresses: Addresses,
    /// Paths of messages.
    plan: Plan,
    /// Progress reports that wait to be sent on their link.
    pub(super) out: VecDeque<(LinkId, Reading)>,
    /// Completions that have been read and not handled, some of them by `remote`.
    pub(super) backlog: VecDeque<CqEvent>,
    /// Closed links whose frames the provider still holds: their address and number of slots.
    tombstones: HashMap<LinkId, (u64, u32)>,
    /// True if tombstones hold too many slots.
    clogged: bool,
    /// Buffer in which injected frames are assembled.
    scratch: Vec<u8>,
}

/// Reasons why a frame was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    /// There is no room now.
    Busy,
    /// The provider rejects the send with this error number.
    Failed(i32),
}

/// Every so many small frames, one takes a slot. Injections have no completion, and `tcp` accepts any number for a peer
/// that does not read; a slot that stays taken stops that.
const INJECT_RUN: u16 = 32;

impl Fabric {
    /// Opens the chosen provider.
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

    /// Posts every receive buffer that the provider does not hold.
    pub(super) fn post_buffers(&mut self) -> Result<(), i32> {
        match &self.main {
            Some(main) => self.receive.post(main, &mut self.ops),
            None => Ok(()),
        }
    }

    /// Returns the peer of an endpoint address, whose address [`Fabric::forget`] releases; `None` if the provider
    /// rejects it.
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

    /// Largest frame in bytes, header included.
    pub(super) fn frame_max(&self) -> usize {
        self.plan().terms.frame_max
    }

    /// Records that a link to the peer with this address can carry frames.
    pub(super) fn on_link_up(&mut self, link: LinkId, peer: u64) {
        if let Some(remote) = &mut self.remote {
            remote.on_link_up(link, peer);
        }
    }

    /// Borrows `remote` and the objects that it needs.
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

    /// Sends a frame to the peer of `link`, with `len` bytes of body that `fill` writes.
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
        // An injection does not report when it has left.
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
        // SAFETY: the slot's memory is not touched before the completion, and outlives the endpoint.
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

    /// Sends a frame that the provider copies at once, without a completion.
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

    /// Counts a slot returned by the provider for a closed link.
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

    /// Releases what remains of a removed link. `remote` has already released its memory.
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

    /// Returns true if frames to dead peers hold so many slots that others suffer.
    pub(super) fn is_clogged(&self) -> bool {
        self.clogged
    }

    /// Number of slots with frames to closed links.
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
        // Closes registrations for peers first.
        self.remote = None;
        if !self.plan.terms.mr_endpoint {
            self.main = None;
        }
        // Registrations bound to the endpoint close before it.
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
