//! A reliable, ordered [`Port`] with every behaviour the contract allows, chosen by seed.
//!
//! ```text
//!   Endpoint -- send, resume, ... --> SimPort --> Fabric (both ends of every link)
//!            <-- Sink -------------- poll  <--- inbox of this port, in order of time
//! ```
//!
//! Depending on its [`Profile`] it takes bodies whole or in part; it delivers bodies through `place` or `on_packet`, at once or
//! piece by piece; its links fill up, close in order, break, or fall silent.

use crate::fabric::{Assembly, Fabric, HostId, Into, Read, Timed, What};
use crate::fronts;
use crate::profile::Profile;
use crate::world::NodeId;
use mx_proto::origin::LinkOrigin;
use mx_proto::port::{
    Body, Close, ConnectError, FABRIC_RDM, HEADER_LEN, HeaderBytes, Limits, LinkControl, LinkDown,
    MoveRefusal, Place, Port, RemoteKey, RemoteMemory, RemoteRead, SendError, Sent, body_len,
};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::secret::Binding;
use mx_proto::{EndpointId, Identity, Instant, LinkId, Memory, NicId, Source, Target};
use std::collections::VecDeque;

/// A node's port. Dropping it breaks its links, as the death of a process does.
#[derive(Debug)]
pub struct SimPort<M: Memory> {
    fabric: Fabric<M>,
    host: HostId,
    profile: Profile,
    /// Number of links that are no fabric's, as of the last round.
    met: usize,
    /// Events of the network that may still be taken in this round, and whether there has been one.
    left: usize,
    any: bool,
    /// Events to be given out before the next one of the network is taken.
    waiting: VecDeque<PortEvent>,
    /// The piece that has been given out as a part.
    piece: Option<Piece>,
    /// The body of a packet that has been given out.
    lent: Vec<u8>,
    /// The answer of `next` that its front has left to it.
    held: Option<Next>,
}

/// A piece of a packet.
#[derive(Debug)]
struct Piece {
    link: LinkId,
    assembly: Assembly,
    bytes: Vec<u8>,
}

impl<M: Memory> SimPort<M> {
    /// Opens a port of `node` under a name. `None` when another node has that name.
    pub fn open(
        fabric: &Fabric<M>,
        node: NodeId,
        nic: NicId,
        endpoint: EndpointId,
        profile: Profile,
    ) -> Option<Self> {
        let host = fabric
            .inner
            .borrow_mut()
            .open(node, nic, endpoint, profile)?;
        Some(Self {
            fabric: fabric.clone(),
            host,
            profile,
            met: 0,
            left: 0,
            any: false,
            waiting: VecDeque::new(),
            piece: None,
            lent: Vec::new(),
            held: None,
        })
    }

    /// Takes as much of a body as there is room for. The link is up and nothing is outstanding.
    fn take_body(
        &mut self,
        link: LinkId,
        header: Option<HeaderBytes>,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let mut inner = self.fabric.inner.borrow_mut();
        let overhead = if header.is_some() { HEADER_LEN } else { 0 };
        let end = inner.end(self.host, link).ok_or(SendError::Down)?;
        let under_way = end.under_way;
        let room = self.profile.room.saturating_sub(under_way);
        let fits = under_way == 0 || overhead + len <= room;
        let may_split = header.is_none() || len > self.profile.packet_max;
        // Now and then a part is taken although everything would fit: a full socket can do that.
        let split = may_split
            && len > 0
            && inner.rng.chance(self.profile.parts)
            && (!fits || inner.rng.chance(0.3));
        if !fits && (!split || room <= overhead) {
            if let Some(end) = inner.end_mut(self.host, link) {
                end.blocked = true;
            }
            return Err(SendError::WouldBlock);
        }
        if split {
            let most = if fits { len - 1 } else { room - overhead };
            let part = inner.rng.within(0..=most.min(len - 1));
            // An empty pipe brings no "writable" by itself.
            let part = if under_way == 0 {
                part.max(1).min(len - 1)
            } else {
                part
            };
            let nothing_moves = under_way == 0 && overhead + part == 0;
            if !nothing_moves {
                let mut copy = Vec::with_capacity(part);
                memory.visit(offset, part, |piece| copy.extend_from_slice(piece));
                if header.is_some() || !copy.is_empty() {
                    inner.ship(self.host, link, header, copy);
                }
                if let Some(end) = inner.end_mut(self.host, link) {
                    end.partial = Some(len - part);
                    end.blocked = true;
                }
                if let Some(header) = header {
                    inner.log_sent(self.host, link, &header, part, "part");
                }
                return Ok(Sent::Part(part));
            }
        }
        if let Some(end) = inner.end_mut(self.host, link) {
            end.partial = None;
        }
        let mut copy = Vec::with_capacity(len);
        memory.visit(offset, len, |piece| copy.extend_from_slice(piece));
        inner.ship(self.host, link, header, copy);
        if let Some(header) = header {
            inner.log_sent(self.host, link, &header, len, "whole");
        }
        Ok(Sent::Whole)
    }

    /// A piece of a packet has arrived: it is given out, or kept until there is more.
    fn take_piece(&mut self, link: LinkId, header: Option<HeaderBytes>, bytes: Vec<u8>) {
        let mut inner = self.fabric.inner.borrow_mut();
        let on_wire = bytes.len() + if header.is_some() { HEADER_LEN } else { 0 };
        inner.taken(self.host, link, on_wire);
        let try_place = inner.rng.chance(self.profile.eager_place);
        let Some(end) = inner.end_mut(self.host, link) else {
            return;
        };
        let assembly = match header {
            Some(header) => Assembly {
                header,
                len: body_len(&header),
                got: 0,
                into: Into::Undecided,
            },
            None => match end.assembly.take() {
                Some(assembly) => assembly,
                None => return,
            },
        };
        drop(inner);
        let (header, whole) = (assembly.header, bytes.len() == assembly.len);
        let first = matches!(assembly.into, Into::Undecided);
        if first && whole && assembly.len <= self.profile.packet_max && !try_place {
            self.lent = bytes;
            return self.waiting.push_back(PortEvent::Packet { link, header });
        }
        let piece = Piece {
            link,
            assembly,
            bytes,
        };
        if first || matches!(piece.assembly.into, Into::Placed) {
            self.piece = Some(piece);
            let begin = first && self.profile.streamed_max > 0;
            return self.waiting.push_back(PortEvent::Part {
                link,
                header,
                begin,
            });
        }
        self.end_piece(piece);
    }

    /// The destination of a piece is known, and it is there.
    fn end_piece(&mut self, piece: Piece) {
        let Piece {
            link,
            mut assembly,
            bytes,
        } = piece;
        let header = assembly.header;
        if let Into::Kept(body) = &mut assembly.into {
            body.extend_from_slice(&bytes);
        }
        assembly.got += bytes.len();
        let mut inner = self.fabric.inner.borrow_mut();
        let Some(end) = inner.end_mut(self.host, link) else {
            return;
        };
        if assembly.got < assembly.len {
            end.assembly = Some(assembly);
            return;
        }
        match assembly.into {
            Into::Placed => self.waiting.push_front(PortEvent::Placed { link, header }),
            Into::Kept(body) => {
                self.lent = body;
                self.waiting.push_front(PortEvent::Packet { link, header });
            }
            Into::Undecided | Into::Nowhere => {}
        }
    }

    /// Takes in one event of the network.
    fn take(&mut self, Timed { link, what, .. }: Timed) {
        let mut inner = self.fabric.inner.borrow_mut();
        let Some(end) = inner.end_mut(self.host, link) else {
            return;
        };
        self.any = true;
        let event = match what {
            What::Up => {
                end.up = true;
                self.waiting.push_back(PortEvent::Up(link));
                std::mem::take(&mut end.blocked).then_some(PortEvent::Writable(link))
            }
            What::Down(reason) => {
                inner.remove(self.host, link);
                Some(PortEvent::Down(link, reason))
            }
            What::Piece { header, bytes } => {
                let spurious = inner.rng.chance(self.profile.spurious);
                drop(inner);
                self.take_piece(link, header, bytes);
                spurious.then_some(PortEvent::Writable(link))
            }
            What::Writable => Some(PortEvent::Writable(link)),
            What::Unbound => {
                if end.accepted {
                    return;
                }
                inner.tell_peer_down(self.host, link, LinkDown::Closed, false);
                inner.remove(self.host, link);
                Some(PortEvent::Down(link, LinkDown::TimedOut))
            }
            What::RemoteRead { token } => {
                let ok = inner.finish_read(self.host, link, token);
                ok.map(|ok| PortEvent::RemoteRead { link, token, ok })
            }
        };
        self.waiting.extend(event);
    }
}

impl<M: Memory> LinkControl for SimPort<M> {
    fn limits(&self, link: LinkId) -> Limits {
        let inner = self.fabric.inner.borrow();
        if let Some(fabric) = self.profile.fabric
            && inner.end(self.host, link).is_some_and(|end| end.added)
        {
            let packet_max = self.profile.packet_max.min(FABRIC_PACKET);
            return Limits {
                packet_max,
                streamed_max: 0,
                data_max: self.profile.data_max.min(self.profile.packet_max),
                pull_block: self.profile.pull_block,
                remote_read: (fabric.remote_read || self.profile.remote_read)
                    && inner.share.is_some(),
                refusal_ends_link: self.profile.refusal_ends_link,
                data_links: 0,
            };
        }
        drop(inner);
        Limits {
            packet_max: self.profile.packet_max,
            streamed_max: self.profile.streamed_max,
            data_max: self.profile.data_max,
            pull_block: self.profile.pull_block,
            remote_read: self.profile.remote_read && self.fabric.inner.borrow().share.is_some(),
            refusal_ends_link: self.profile.refusal_ends_link,
            data_links: self.profile.data_links,
        }
    }

    fn connect(&mut self, target: Target, _now: Instant) -> Result<LinkId, ConnectError> {
        let mut inner = self.fabric.inner.borrow_mut();
        let target = (inner.rename)(target);
        inner.connect(self.host, target)
    }

    fn connect_beside(&mut self, link: LinkId, _now: Instant) -> Result<LinkId, ConnectError> {
        let mut inner = self.fabric.inner.borrow_mut();
        inner.connect_beside(self.host, link)
    }

    fn has_places_beside(&self, _link: LinkId) -> bool {
        let fabric = self.profile.fabric;
        fabric.is_none_or(|fabric| self.met < fabric.places)
    }

    fn fabrics(&self, _link: LinkId, _called: bool) -> u32 {
        self.profile.fabric.map_or(0, |_| FABRIC_RDM)
    }

    fn must_move(&self, _link: LinkId) -> bool {
        self.profile.fabric.is_some_and(|fabric| fabric.strict)
    }

    fn offer(
        &mut self,
        _link: LinkId,
        _fabric: u32,
        _now: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        let (link, address) = self.fabric.inner.borrow_mut().offer(self.host);
        Ok((Some(link), address))
    }

    fn call(
        &mut self,
        _link: LinkId,
        _fabric: u32,
        address: &[u8],
        _now: Instant,
    ) -> Result<LinkId, MoveRefusal> {
        self.fabric.inner.borrow_mut().call(self.host, address)
    }

    fn accept(&mut self, link: LinkId) {
        if let Some(end) = self.fabric.inner.borrow_mut().end_mut(self.host, link) {
            end.accepted = true;
        }
    }

    fn link_origin(&self, link: LinkId, _: &Identity) -> LinkOrigin {
        self.fabric.inner.borrow().seen(self.host, link)
    }

    fn has_interface(&self, nic: NicId) -> bool {
        let inner = self.fabric.inner.borrow();
        let target = (inner.rename)(Target::auto(nic, EndpointId(0)));
        inner.addresses(self.host).contains(&target.nic)
    }

    fn binding(&self, link: LinkId) -> Binding {
        let inner = self.fabric.inner.borrow();
        let peer = inner.end(self.host, link).and_then(|end| end.peer);
        let name = |host: HostId, link: LinkId| (host as u64) << 32 | u64::from(link.index());
        match peer.filter(|_| self.profile.binding) {
            Some((peer, other)) => {
                let (ours, theirs) = (name(self.host, link), name(peer, other));
                [ours.min(theirs), ours.max(theirs)]
            }
            None => [0; 2],
        }
    }

    fn close(&mut self, link: LinkId, how: Close) {
        let mut inner = self.fabric.inner.borrow_mut();
        let Some(end) = inner.end(self.host, link) else {
            return;
        };
        let broken = end.partial.is_some();
        match how {
            Close::Flush if !broken => {
                inner.tell_peer_down(self.host, link, LinkDown::Closed, true);
            }
            _ => inner.tell_peer_down(self.host, link, LinkDown::Reset, false),
        }
        inner.remove(self.host, link);
        self.waiting.retain(|event| event.link() != Some(link));
    }

    fn arm(&mut self) -> bool {
        !self.fabric.inner.borrow().anything_due(self.host)
    }

    fn disarm(&mut self) {}
}

impl<M: Memory> Port<M> for SimPort<M> {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        assert_eq!(
            body_len(header),
            body.len(),
            "the header does not tell the body's length"
        );
        let mut inner = self.fabric.inner.borrow_mut();
        let end = inner.end_mut(self.host, link).ok_or(SendError::Down)?;
        if !end.up || end.partial.is_some() {
            end.blocked = true;
            return Err(SendError::WouldBlock);
        }
        let bytes = match body {
            Body::Memory {
                memory,
                offset,
                len,
            } => {
                let Profile {
                    packet_max,
                    streamed_max,
                    data_max,
                    ..
                } = self.profile;
                assert!(len <= packet_max.max(streamed_max).max(data_max));
                drop(inner);
                return self.take_body(link, Some(*header), memory, offset, len);
            }
            Body::Bytes(bytes) => bytes,
        };
        assert!(
            bytes.len() <= self.profile.packet_max,
            "a body larger than packet_max"
        );
        if end.under_way > 0 && end.under_way + HEADER_LEN + bytes.len() > self.profile.room {
            end.blocked = true;
            return Err(SendError::WouldBlock);
        }
        inner.ship(self.host, link, Some(*header), bytes.to_vec());
        inner.log_sent(self.host, link, header, bytes.len(), "whole");
        Ok(Sent::Whole)
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let left = {
            let inner = self.fabric.inner.borrow();
            inner.end(self.host, link).ok_or(SendError::Down)?.partial
        };
        assert_eq!(
            left,
            Some(len),
            "the rest must be exactly what was not taken"
        );
        self.take_body(link, None, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize) {
        let mut inner = self.fabric.inner.borrow_mut();
        let left = inner
            .end_mut(self.host, link)
            .and_then(|end| end.partial.take());
        if let Some(left) = left {
            assert_eq!(left, len, "the rest must be exactly what was not taken");
            let mut rest = Vec::with_capacity(len);
            memory.visit(offset, len, |piece| rest.extend_from_slice(piece));
            inner.ship(self.host, link, None, rest);
        }
    }

    fn remote_memory(&mut self, _link: LinkId) -> Option<&mut dyn RemoteMemory<M>> {
        Some(self)
    }
}

impl<M: Memory> Rounds<M> for SimPort<M> {
    type Lent<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn begin(&mut self, _now: Instant, budget: usize) {
        (self.left, self.any) = (budget, false);
        let before = self.met;
        self.met = self.fabric.inner.borrow().met(self.host);
        if self.met > before
            && self
                .profile
                .fabric
                .is_some_and(|fabric| self.met > fabric.places)
        {
            self.waiting.push_back(PortEvent::PlacesShort);
        }
    }

    fn next(&mut self) -> Next {
        if let Some(next) = self.held.take() {
            return next;
        }
        assert!(
            self.piece.is_none(),
            "a part that is neither read nor skipped"
        );
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Next::Event(event);
            }
            let next = match self.left {
                0 => None,
                _ => self.fabric.inner.borrow_mut().take(self.host),
            };
            match next {
                Some(event) => {
                    self.left -= 1;
                    self.take(event);
                }
                None => break,
            }
        }
        let inner = self.fabric.inner.borrow();
        if self.left == 0 && inner.anything_due(self.host) {
            // There may be more: the node has to come back although nothing new arrives.
            inner
                .world
                .wake(inner.world.now(), inner.hosts[self.host].node);
        }
        Next::End { any: self.any }
    }

    fn take_packets(
        &mut self,
        take: impl FnMut(LinkId, &HeaderBytes, &dyn Source) -> bool,
    ) -> Option<bool> {
        fronts::take_packets(self, |port| &mut port.held, take)
    }

    fn body(&self) -> &[u8] {
        &self.lent[..]
    }

    fn read(&mut self, mut place: Place<'_, M>) {
        let mut piece = self.piece.take().expect("a part is lent");
        let (at, len) = (place.offset + piece.assembly.got, piece.bytes.len());
        let written = place.memory.fill(at, len, &piece.bytes[..], 0);
        assert_eq!(written, len, "place promised room for all of the body");
        piece.assembly.into = Into::Placed;
        self.end_piece(piece);
    }

    fn skip(&mut self) {
        let mut piece = self.piece.take().expect("a part is lent");
        let assembly = &mut piece.assembly;
        assembly.into = if assembly.got == 0 && assembly.len <= self.profile.packet_max {
            Into::Kept(Vec::with_capacity(assembly.len))
        } else {
            Into::Nowhere
        };
        self.end_piece(piece);
    }
}

impl<M: Memory> RemoteMemory<M> for SimPort<M> {
    fn recall(&mut self, link: LinkId, token: u64) {
        let mut inner = self.fabric.inner.borrow_mut();
        inner.reads.remove(&(self.host, link, token));
    }

    fn register(&mut self, _link: LinkId, memory: &M, _token: u64) -> Option<RemoteKey> {
        self.fabric.inner.borrow_mut().register(self.host, memory)
    }

    fn deregister(&mut self, _link: LinkId, key: RemoteKey) {
        self.fabric.inner.borrow_mut().deregister(self.host, key);
    }

    fn read(&mut self, link: LinkId, read: RemoteRead<'_, M>) -> Result<(), SendError> {
        let RemoteRead {
            key,
            from,
            memory,
            at,
            len,
            token,
        } = read;
        let mut inner = self.fabric.inner.borrow_mut();
        inner.end(self.host, link).ok_or(SendError::Down)?;
        let share = inner.share.ok_or(SendError::Down)?;
        let into = share(memory);
        let read = Read {
            key,
            from,
            into,
            at,
            len,
            stopped: false,
        };
        inner.reads.insert((self.host, link, token), read);
        let when = inner.world.now().after(self.profile.latency * 2);
        inner.put(when, self.host, link, What::RemoteRead { token });
        Ok(())
    }

    fn stop(&mut self, link: LinkId, token: u64) {
        let mut inner = self.fabric.inner.borrow_mut();
        // Some of it may have been read.
        if inner.rng.chance(0.5)
            && let Some(read) = inner.reads.get_mut(&(self.host, link, token))
        {
            read.stopped = true;
        }
    }
}

impl<M: Memory> Drop for SimPort<M> {
    fn drop(&mut self) {
        self.fabric.inner.borrow_mut().shut(self.host, true);
    }
}

/// Largest packet of a link of a fabric.
const FABRIC_PACKET: usize = 6 << 10;
