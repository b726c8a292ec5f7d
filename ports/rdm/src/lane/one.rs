//! One lane: its endpoint, how it gets warm, and when it has lasted long enough.
//!
//! ```text
//!   opened --> paired --> warm --> idle or stuck: closed
//!              |          heard and said: reads may begin
//!              `-- Hear posted; Say once it is our turn
//! ```
//!
//! Owns: the endpoint, the first messages' memory.
//! Knows nothing of: other lanes, links.

use super::super::exposure::Exposures;
use super::super::flow::{Broken, Flow, Pace, Via, WARM_TAG};
use super::super::remote::{LaneOp, News, Outlet};
use super::Cause;
use libc::{c_void, iovec};
use libfabric_sys::abi::{FI_ADDR_UNSPEC, FI_EAGAIN};
use mx_port_fabric::Ep;
use mx_proto::{Instant, LinkId};
use std::time::Duration;

pub(super) struct Lane {
    /// Stands first: its memory must not go before it is closed.
    pub(super) ep: Ep,
    pub(super) generation: u32,
    pub(super) hello: Hello,
    pub(super) peer: Option<Peer>,
    pub(super) flow: Flow,
    pub(super) opened: Instant,
    pub(super) used: Instant,
    /// In `active`.
    pub(super) active: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) generation: u32,
    /// In the address vector.
    pub(super) address: u64,
}

/// The first messages of a lane, which make the provider connect.
pub(super) struct Hello {
    /// Where the peer's goes, and where ours comes from. They stay where they are.
    pub(super) ear: Box<[u8; HELLO_LEN]>,
    pub(super) mouth: Box<[u8; HELLO_LEN]>,
    pub(super) listening: bool,
    pub(super) heard: bool,
    /// We speak without having been spoken to.
    pub(super) first: bool,
    pub(super) said: Said,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Posted,
    Done,
}

impl Lane {
    pub(super) fn is_warm(&self) -> bool {
        self.peer.is_some() && self.hello.heard && self.hello.said == Said::Done
    }

    pub(super) fn parts(&mut self, link: LinkId, peer: Peer) -> (&mut Flow, Via<'_>) {
        let via = Via {
            ep: &self.ep,
            link,
            ours: self.generation,
            theirs: peer.generation,
            peer: peer.address,
        };
        (&mut self.flow, via)
    }

    /// Whatever can be given to the provider now.
    pub(super) fn advance(
        &mut self,
        outlet: &mut Outlet<'_>,
        exposures: &mut Exposures,
        link: LinkId,
        peer: Peer,
    ) -> Result<Pace, Broken> {
        let warm = self.is_warm();
        let via = Via {
            ep: &self.ep,
            link,
            ours: self.generation,
            theirs: peer.generation,
            peer: peer.address,
        };
        let own = if warm {
            self.flow.ask(outlet, via)?
        } else {
            self.hello.advance(outlet, via)?
        };
        // The peer may be warm before we are.
        let theirs = self.flow.serve(outlet, via, exposures)?;
        Ok(own.max(theirs))
    }

    /// May something happen on it that somebody has to look for?
    pub(super) fn may_move(&self, now: Instant) -> bool {
        !self.is_warm() || self.flow.has_posted() || now.since(self.used) < LINGER
    }

    /// When it is to be closed if nothing happens until then, and why.
    pub(super) fn ends_at(&self) -> (Instant, Cause) {
        if !self.is_warm() {
            let why = Broken("the peer's lane does not answer", 0);
            (self.opened.after(WARM_MAX), Cause::Broken(why))
        } else if let Some(since) = self.flow.cancelled_since() {
            let why = Broken("a cancelled receive does not come back", 0);
            (since.after(CANCEL_MAX), Cause::Broken(why))
        } else if self.flow.is_idle() {
            (self.used.after(IDLE_MAX), Cause::Idle)
        } else {
            // Requests have their own time-outs; this is only when to look again.
            (Instant(u64::MAX), Cause::Idle)
        }
    }
}

impl Default for Hello {
    fn default() -> Self {
        Self {
            ear: Box::new([0; HELLO_LEN]),
            mouth: Box::new(*b"mx lane."),
            listening: false,
            heard: false,
            first: false,
            said: Said::Nothing,
        }
    }
}

impl Hello {
    fn advance(&mut self, outlet: &mut Outlet<'_>, via: Via<'_>) -> Result<Pace, Broken> {
        if !self.listening {
            let context = outlet.ops.begin(via.op(LaneOp::Hear));
            let posted = self.listen(via.ep, context);
            if let Err(errno) = posted {
                outlet.ops.end(context);
                return retry_or("listening failed", errno);
            }
            self.listening = true;
        }
        if self.said == Said::Nothing && (self.first || self.heard) {
            let context = outlet.ops.begin(via.op(LaneOp::Say));
            let posted = self.say(via, context);
            if let Err(errno) = posted {
                outlet.ops.end(context);
                return retry_or("speaking failed", errno);
            }
            self.said = Said::Posted;
        }
        Ok(Pace::Rest)
    }

    fn listen(&mut self, ep: &Ep, context: *mut c_void) -> Result<(), i32> {
        let (start, len) = (self.ear.as_mut_ptr(), self.ear.len());
        // SAFETY: the box goes only after the endpoint has been closed (`Lane`, `shut`), and
        // nobody looks at what is in it.
        unsafe {
            ep.tagged_receive(
                start,
                len,
                std::ptr::null_mut(),
                FI_ADDR_UNSPEC,
                WARM_TAG,
                context,
            )
        }
    }

    fn say(&mut self, via: Via<'_>, context: *mut c_void) -> Result<(), i32> {
        let words = [iovec {
            iov_base: self.mouth.as_mut_ptr().cast(),
            iov_len: self.mouth.len(),
        }];
        // SAFETY: as in `listen`; it is never written to.
        unsafe {
            via.ep
                .tagged_send(&words, std::ptr::null_mut(), via.peer, WARM_TAG, context)
        }
    }
}

pub(super) fn retry_or(what: &'static str, errno: i32) -> Result<Pace, Broken> {
    match errno {
        FI_EAGAIN => Ok(Pace::Retry),
        _ => Err(Broken(what, errno)),
    }
}

/// Lets the provider handle what has arrived. `ofi_rxm` does so once more when its connections are
/// closed already, and then crashes over a message that wants an answer.
pub(super) fn calm(ep: &Ep, outlet: &mut Outlet<'_>, news: &mut News) {
    let mut quiet = 0;
    for _ in 0..CALM_LOOKS {
        match news.look_at(ep, outlet.ops) {
            Ok(true) => quiet = 0,
            Ok(false) => quiet += 1,
            Err(_) => return,
        }
        if quiet == CALM_QUIET {
            return;
        }
    }
}

/// A lane that moved nothing for so long is closed: an application that computes for a minute
/// between two phases of input and output can spare the tens of milliseconds for another.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// 7 to 107 ms were measured between two idle processes; this leaves room for busy ones.
pub(super) const WARM_MAX: Duration = Duration::from_secs(5);

/// Providers return a cancelled receive within microseconds.
pub(super) const CANCEL_MAX: Duration = Duration::from_secs(1);

/// The provider may still have an acknowledgement of its own to send when all of our operations
/// have ended.
const LINGER: Duration = Duration::from_millis(20);

/// Looks without an event, in a row, after which a provider has handled all that had arrived: each
/// takes in what is in its sockets, and up to 32 messages of that.
const CALM_QUIET: u32 = 4;
const CALM_LOOKS: u32 = 64;

/// Bytes of the first message.
const HELLO_LEN: usize = 8;
