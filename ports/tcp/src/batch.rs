//! Small packets of one link that are held, to be sent in one system call.
//!
//! ```text
//!   send while packets may be held --> batch --send_held, a round, a packet that does not fit--> kernel
//!                                        `-- bytes that it does not accept --> the link's backlog
//! ```
//!
//! Owns: the bytes of held packets, all of one link.
//! Out of scope: when packets may be held, which the endpoint's user decides ([`LinkControl::hold`]).
//!
//! [`LinkControl::hold`]: mx_proto::port::LinkControl::hold

use super::TcpPort;
use super::link::Phase;
use super::send::SCRATCH;
use mx_proto::port::{Body, HEADER_LEN, HeaderBytes};
use mx_proto::{LinkId, Memory};

/// Held packets of one link.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// True if packets may be held.
    pub(super) open: bool,
    link: Option<LinkId>,
    bytes: Vec<u8>,
}

/// Longest packet that is held, in bytes with its header: a longer one gains little from fewer calls.
const PACKET_MAX: usize = 4096;

/// Maximum bytes that are held.
const BATCH_MAX: usize = SCRATCH;

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns true if a packet may be held, or held ones have to be sent before it.
    #[inline]
    pub(super) fn has_to_do(&self) -> bool {
        self.open || !self.is_empty()
    }

    /// Adds a packet if it can be held, and only behind those of its own link. Returns false if it was not added.
    fn add<M: Memory>(&mut self, link: LinkId, header: &HeaderBytes, body: &Body<'_, M>) -> bool {
        let len = HEADER_LEN + body.len();
        let fits = len <= PACKET_MAX && self.bytes.len() + len <= BATCH_MAX;
        if !self.open || !fits || !(self.is_empty() || self.link == Some(link)) {
            return false;
        }
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(BATCH_MAX);
        }
        self.link = Some(link);
        self.bytes.extend_from_slice(header);
        match body {
            Body::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            Body::Memory {
                memory,
                offset,
                len: body,
            } => {
                let end = self.bytes.len() + *body;
                memory.visit(*offset, *body, |piece| self.bytes.extend_from_slice(piece));
                // A buffer shorter than it claims must not shift later packets.
                self.bytes.resize(end, 0);
            }
        }
        true
    }
}

impl TcpPort {
    /// Holds a packet if possible. Otherwise sends the held ones and returns false: the caller sends the packet.
    #[inline(never)]
    pub(super) fn hold_packet<M: Memory>(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> bool {
        if let Some(link) = self.links.get_mut(id)
            && link.failed.is_none()
            && matches!(link.phase, Phase::Open)
            && link.tx.is_clear()
            && self.batch.add(id, header, body)
        {
            Self::doubt(id, link, &mut self.doubted, &mut self.chores);
            return true;
        }
        self.end_batch();
        false
    }

    /// Sends the held packets, before anything else goes over their link.
    #[inline]
    pub(super) fn end_batch(&mut self) {
        if !self.batch.is_empty() {
            self.send_batch();
        }
    }

    #[inline(never)]
    fn send_batch(&mut self) {
        let mut bytes = std::mem::take(&mut self.batch.bytes);
        if let Some(id) = self.batch.link
            && let Some(link) = self.links.get_mut(id)
            && link.failed.is_none()
        {
            match link.tx.batch(&link.fd, &bytes) {
                Ok(true) => {}
                Ok(false) => self.poll_set.block(id, link),
                Err(error) => self.sending_failed(id, &error),
            }
        }
        bytes.clear();
        self.batch.bytes = bytes;
    }
}
