//! Port over libfabric's reliable datagrams.
//!
//! ```text
//!   HostPorts --- offer, call: links of sessions that began over TCP
//!       |
//!   RdmPort  --- links     states, keep-alive
//!       |    --- frame     header of every frame
//!       |    `-- fabric    one open domain:
//!       |            small    fi_inject                      (slots are not needed)
//!       |            medium   slots, fi_send                 receive: multi-receive buffers
//!       |            large    remote: RMA reads, where they are real; else like medium
//!       v
//!   libfabric-sys --- libfabric.so.1, or the fake of the tests
//! ```
//!
//! libfabric moves frames into posted buffers, and reads memory where the hardware does. Matching, flow control,
//! cancellation and liveness are implemented here and in `mx-proto`, because no measured provider does them reliably.
//!
//! Main rule: **the provider gets application memory only where its access can be ended**. Data is copied, or goes
//! through `remote`: registered, with access ending when the registration closes.
//!
//! Owns: the links, and reopening.
//! Out of scope: TCP.

mod access;
mod addresses;
mod bounce;
mod device;
mod endpoint_addresses;
mod fabric;
mod frame;
pub mod hardware;
mod incoming;
mod links;
mod ops;
mod pieces;
mod plan;
mod poll;
mod port;
mod provider;
mod reading;
mod receive;
mod registration;
mod remote;
mod sequence;
mod slots;

pub use device::Device;
use fabric::{Fabric, NotSent};
use frame::FrameKind;
use hardware::{CLASSES, DeviceInUse};
use libfabric_sys::Library;
use links::{Alarm, Control, Links, Peer, State};
use mx_port_base::epoll::Epoll;
pub use mx_port_fabric::{Finding, Paths, RdmError, Verdict, Wait};
use mx_proto::port::LinkDown;
use mx_proto::round::PortEvent;
use mx_proto::{Instant, LinkId};
use poll::Round;
use provider::Choice;
pub use provider::survey;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Options for opening the port.
#[derive(Clone, Debug)]
pub struct RdmOptions {
    /// Exact name of the only provider to use; `None`: the best.
    pub provider: Option<String>,
    /// True to use only providers of fabric hardware.
    pub hardware_only: bool,
    /// Interface to use.
    pub device: Device,
    /// Silence after which a peer counts as dead.
    pub keepalive: Duration,
    /// Means by which threads wait. [`Wait::Poll`] saves `tcp;ofi_rxm` a microsecond a message, and delays a sleeper by
    /// up to some milliseconds.
    pub wait: Wait,
    /// libfabric to use; `None`: the installed one.
    pub library: Option<Library>,
}

impl Default for RdmOptions {
    fn default() -> Self {
        Self {
            provider: None,
            hardware_only: false,
            device: Device::default(),
            keepalive: Duration::from_secs(20),
            wait: Wait::Fd,
            library: None,
        }
    }
}

/// Port of one endpoint over libfabric's reliable datagrams: an open provider (the fabric) and all links over it.
/// Reopens the fabric if that breaks, which ends all links.
pub struct RdmPort {
    library: Arc<Library>,
    /// Options of opening, with the current device.
    options: RdmOptions,
    choice: Choice,
    /// `None` after a breakdown, until reopening succeeds.
    fabric: Option<Fabric>,
    /// Device of the fabric; `None` if the system does not list it.
    in_use: Option<DeviceInUse>,
    links: Links,
    /// Events that the endpoint has not been told of: links that ended, or have room again.
    queued: VecDeque<PortEvent>,
    /// Position in the round.
    round: Round,
    /// Links on which a send failed; they end when nothing is borrowed.
    broken: Vec<LinkId>,
    /// Links without room, the longest waiting first.
    blocked: VecDeque<LinkId>,
    /// Earliest time at which one of them may retry.
    room_at: Instant,
    /// Epoll instance of sleepers, which stays across reopening. The provider's descriptor is in it only during a
    /// sleep: providers' descriptors are nested epoll instances, and every level above them costs each arriving message
    /// about half a microsecond.
    nest: Epoll,
    /// Queue descriptor that is currently in `nest`.
    armed: Option<RawFd>,
    /// True if waiting for events failed: the port is polled at its deadlines.
    polled_only: bool,
    now: Instant,
    /// Time of the last poll.
    polled: Instant,
    /// Time of the last keep-alive sent outside of polls.
    signed: Instant,
    /// Time of the last round in which anything happened.
    busy: Instant,
    /// Earliest time of the next attempt to reopen.
    retry_at: Instant,
    /// Time of the next release of unused memory.
    give_back_at: Instant,
    stats: RdmStats,
    /// Empty between polls; kept for its allocation.
    alarms: Vec<Alarm>,
}

mx_proto::counters! {
    /// Counters of a port.
    pub struct RdmStats("rdm_") {
        Count stale: u64 = "frames over a fabric that belong to no link",
        Count early: u64 = "frames over a fabric that arrived out of order",
        Count malformed: u64 = "malformed frames over a fabric",
        Count strange: u64 = "completions of a fabric that belong to no operation",
        Count renewals: u64 = "times the fabric was reopened",
        Count blocked: u64 = "times the fabric had no room for a frame",
    }
}

/// Maximum pause before a link without room retries: not every provider reports room, and a dead peer may have none
/// until its death is noticed.
const RETRY: Duration = Duration::from_millis(1);

/// First such pause, in which a fabric carries a frame or two.
const RETRY_FIRST: Duration = Duration::from_micros(10);

/// Time after which unused memory is released.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// Time between two attempts to reopen a broken fabric.
const RETRY_OPEN: Duration = Duration::from_secs(5);

impl RdmPort {
    /// Loads libfabric, chooses the best provider that the options allow, and opens it. Fails if there is none; the
    /// error lists the providers of this machine.
    pub fn open(options: RdmOptions) -> Result<Self, RdmError> {
        let library = Arc::new(match &options.library {
            Some(library) => library.clone(),
            None => Library::get()?.clone(),
        });
        let (choice, fabric) = Choice::make(&library, &options, |it| it.open(&library))?;
        if plan::is_software(choice.provider()) {
            log::info!(
                "provider {} is software and meant for tests: MX_PORT=tcp is faster",
                choice.provider()
            );
        }
        let nest = Epoll::new().map_err(RdmError::System)?;
        Ok(Self {
            library,
            in_use: DeviceInUse::of(Path::new(CLASSES), &choice.domain()),
            choice,
            fabric: Some(fabric),
            links: Links::new(options.keepalive),
            options,
            queued: VecDeque::new(),
            round: Round::default(),
            broken: Vec::new(),
            blocked: VecDeque::new(),
            room_at: Instant(0),
            nest,
            armed: None,
            polled_only: false,
            now: Instant(0),
            polled: Instant(0),
            signed: Instant(0),
            busy: Instant(0),
            retry_at: Instant(0),
            give_back_at: Instant(0),
            stats: RdmStats::default(),
            alarms: Vec::new(),
        })
    }

    /// Returns the provider's exact name.
    pub fn provider(&self) -> &str {
        self.choice.provider()
    }

    /// Returns the counters.
    pub fn stats(&self) -> RdmStats {
        self.stats
    }

    /// Returns the number of send buffers that cannot be reused yet, because the provider has not completed sends of
    /// links that have been closed.
    pub fn lost_slots(&self) -> usize {
        self.fabric.as_ref().map_or(0, |fabric| fabric.lost_slots())
    }

    /// Makes the provider's descriptor wake sleepers. Returns false if it cannot, now or ever.
    fn hold_on(&mut self, fd: RawFd) -> bool {
        if self.armed == Some(fd) {
            return true;
        }
        self.let_go();
        self.armed = Some(fd);
        if let Err(error) = self.nest.join(mx_port_base::ports::RDM, Some(fd)) {
            log::warn!(
                "provider {}: polled from now on: {error}",
                self.choice.provider()
            );
            self.polled_only = true;
            self.let_go();
        }
        !self.polled_only
    }

    /// Returns the descriptor to sleep on, if any.
    fn wait_fd(&self) -> Option<RawFd> {
        let fabric = self.fabric.as_ref().filter(|_| !self.polled_only)?;
        fabric.domain.wait_fd()
    }

    /// Undoes [`RdmPort::hold_on`].
    fn let_go(&mut self) {
        if let Some(fd) = self.armed.take() {
            self.nest.remove(&fd);
        }
    }

    /// Reopens a broken fabric when due. Returns false if no peer can be reached, also if the device was removed or has
    /// no link.
    fn is_open(&mut self, now: Instant) -> bool {
        self.watch_device();
        if self.in_use.as_ref().is_some_and(|device| !device.is_up()) {
            log::debug!("{}: the device has no link", self.choice.place());
            return false;
        }
        if self.fabric.is_none() && now >= self.retry_at {
            self.reopen(now);
        }
        self.fabric.is_some()
    }

    /// Closes a device that was removed: some providers do not report that.
    fn watch_device(&mut self) {
        if self.fabric.is_some() && self.has_lost_device() {
            log::error!("{}: the device has disappeared", self.choice.place());
            self.renew();
        }
    }

    fn has_lost_device(&self) -> bool {
        let device = self.in_use.as_ref();
        device.is_some_and(|device| !device.is_there())
    }

    /// Ends a link from this side, and tells a peer that may still be alive.
    fn fail(&mut self, id: LinkId, reason: LinkDown) {
        let link = self.links.of(id);
        let peer = link.filter(|link| link.state == State::Up);
        let peer = peer.and_then(|link| link.peer);
        if let (Some(fabric), Some(peer)) = (&mut self.fabric, &peer) {
            fabric.addresses.keep(peer.address);
        }
        let renewals = self.stats.renewals;
        self.end(id, reason);
        // A renewal has already told all peers.
        if let Some(peer) = peer
            && self.stats.renewals == renewals
        {
            self.tell(peer);
        }
    }

    /// Ends a link whose underlying connection is dead, and tells the peer over a new connection, which the provider
    /// makes after the address has been removed.
    fn disconnect(&mut self, id: LinkId) {
        let Some(link) = self.links.of(id) else {
            return;
        };
        let (reason, peer) = (link.broken(), link.peer);
        let bytes = self.fabric.as_ref().and_then(|fabric| {
            let bytes = fabric.addresses.bytes(peer.as_ref()?.address)?;
            Some(bytes.to_vec())
        });
        self.end(id, reason);
        if let (Some(fabric), Some(peer), Some(bytes)) = (&mut self.fabric, peer, bytes)
            && let Ok(address) = fabric.addresses.take(&fabric.domain, &bytes)
        {
            self.tell(Peer { address, ..peer });
        }
    }

    /// Tells a peer that its link has ended. The caller has counted a use of its address.
    fn tell(&mut self, peer: Peer) {
        if self.fabric.is_none() {
            return;
        }
        let rest = self.links.depart(peer, self.now);
        self.queue_control(rest, FrameKind::Reset, &[]);
        if !self.flush_control(rest) {
            self.block(rest);
        }
    }

    /// Ends a link that the peer knows. The endpoint is told at the next opportunity, unless it has closed the link
    /// itself.
    fn end(&mut self, id: LinkId, reason: LinkDown) {
        let Some(link) = self.links.of(id) else {
            return;
        };
        let known = !matches!(link.state, State::Closing { .. });
        if self.drop_link(id) && known {
            self.queued.push_back(PortEvent::Down(id, reason));
        }
    }

    /// Removes a link and releases its memory; nothing is sent on it any more. Returns false if all links were removed
    /// meanwhile.
    fn drop_link(&mut self, id: LinkId) -> bool {
        self.with_remote(|remote, outlet| remote.on_link_down(outlet, id));
        let Some(link) = self.links.take(id) else {
            return false;
        };
        if let Some(fabric) = &mut self.fabric {
            fabric.forget(&link);
            if self.links.len() == 0 {
                // Release recently used memory, then currently unused memory.
                fabric.slots.give_back();
                fabric.slots.give_back();
            }
        }
        true
    }

    /// Calls `remote`, and reopens everything if only that makes the provider return memory.
    fn with_remote<T>(
        &mut self,
        call: impl FnOnce(&mut remote::Remote, &mut remote::PortContext<'_>) -> T,
    ) -> Option<T> {
        let fabric = self.fabric.as_mut()?;
        let (remote, mut outlet) = fabric.remote()?;
        let result = call(remote, &mut outlet);
        if remote.wants_renewal() {
            log::warn!(
                "provider {} does not return memory: closing its endpoint",
                self.choice.provider()
            );
            self.renew();
        }
        Some(result)
    }

    /// Closes the fabric, which makes the provider return everything, and reopens it.
    #[cold]
    fn renew(&mut self) {
        self.stats.renewals += 1;
        self.let_go();
        let peers = self.fabric.as_ref().map_or_else(Vec::new, |fabric| {
            let address = |peer: &Peer| Some(fabric.addresses.bytes(peer.address)?.to_vec());
            let peers = self.links.peers();
            peers
                .filter_map(|peer| Some((address(&peer)?, peer)))
                .collect()
        });
        // The provider must return the memory before completions are visible.
        self.fabric = None;
        for id in self.links.ids() {
            self.end(id, LinkDown::Reset);
        }
        self.blocked.clear();
        self.broken.clear();
        self.reopen(self.now);
        // Frames of peers go to an address that no longer exists.
        for (bytes, peer) in peers {
            if let Some(fabric) = &mut self.fabric
                && let Ok(address) = fabric.addresses.take(&fabric.domain, &bytes)
            {
                self.tell(Peer { address, ..peer });
            }
        }
    }

    #[cold]
    fn reopen(&mut self, now: Instant) {
        if self.has_lost_device() {
            return;
        }
        self.retry_at = now.after(RETRY_OPEN);
        match Fabric::open(&self.library, &self.choice) {
            Ok(fabric) => {
                log::info!("{}: opened again", self.choice.place());
                self.fabric = Some(fabric);
            }
            Err(error) => log::error!("{}: {error}", self.choice.place()),
        }
    }

    /// Sends a small frame, or queues it.
    fn send_control(&mut self, id: LinkId, kind: FrameKind, body: &[u8]) {
        let waits = self
            .links
            .of(id)
            .is_some_and(|link| !link.control.is_empty());
        let sent = if waits {
            Err(NotSent::Busy)
        } else {
            self.send_now(id, kind, body)
        };
        if sent == Err(NotSent::Busy) {
            self.queue_control(id, kind, body);
            self.block(id);
        }
    }

    fn queue_control(&mut self, id: LinkId, kind: FrameKind, body: &[u8]) {
        let Some(link) = self.links.of_mut(id) else {
            return;
        };
        // A single queued response is enough for a peer that asks without reading.
        let once = !matches!(kind, FrameKind::Reading | FrameKind::Rest);
        let same = |waiting: &Control| waiting.kind == kind && waiting.body[..] == *body;
        if !once || !link.control.iter().any(same) {
            link.control.push_back(Control {
                kind,
                body: SmallVec::from_slice(body),
            });
        }
    }

    fn send_now(&mut self, id: LinkId, kind: FrameKind, body: &[u8]) -> Result<(), NotSent> {
        let (Some(fabric), Some(link)) = (&mut self.fabric, self.links.of_mut(id)) else {
            return Err(NotSent::Failed(libc::ENOTCONN));
        };
        let sent = fabric.send(link, kind, body.len(), |out| {
            out.copy_from_slice(body);
        });
        if sent.is_ok() {
            link.pause = Duration::ZERO;
        }
        if let Err(NotSent::Failed(code)) = sent {
            log::debug!(
                "link {id:?}: {kind:?} not sent: {}",
                self.library.strerror(code)
            );
            self.broken.push(id);
        }
        sent
    }

    /// Queues a link that waits for room.
    fn block(&mut self, id: LinkId) {
        self.stats.blocked += 1;
        if let Some(link) = self.links.of_mut(id)
            && !link.blocked
        {
            link.blocked = true;
            link.pause = (link.pause * 2).clamp(RETRY_FIRST, RETRY);
            link.retry_at = self.now.after(link.pause);
            self.room_at = if self.blocked.is_empty() {
                link.retry_at
            } else {
                self.room_at.min(link.retry_at)
            };
            self.blocked.push_back(id);
        }
    }
}

impl std::fmt::Debug for RdmPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RdmPort")
            .field("provider", &self.provider())
            .field("links", &self.links.len())
            .field("open", &self.fabric.is_some())
            .field("lost", &self.lost_slots())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    mod objects;

    use super::*;
    use libfabric_fake::{Death, Fake, Shape};
    use mx_port_base::clock::MonotonicClock;
    use mx_proto::Clock;
    use mx_proto::port::LinkControl;
    use mx_sim::Polled;

    #[test]
    fn lost_device_is_closed_and_reopened_when_back() {
        let classes = std::env::temp_dir().join(format!("mx-gone-{}", std::process::id()));
        let (device, state) = (classes.join("infiniband/fake0"), "ports/1/state");
        let plug = |line: &str| {
            std::fs::create_dir_all(device.join("ports/1")).unwrap();
            std::fs::write(device.join(state), line).unwrap();
        };
        plug("4: ACTIVE");
        let fake = Fake::new(Shape::verbs_rxm(), 1);
        let options = RdmOptions {
            library: Some(fake.library()),
            ..RdmOptions::default()
        };
        let mut port = RdmPort::open(options).unwrap();
        port.in_use = DeviceInUse::of(&classes, &port.choice.domain());
        let now = port.now;
        assert!(port.is_open(now));
        plug("1: DOWN");
        assert!(
            !port.is_open(now) && port.fabric.is_some(),
            "it may have a link again"
        );
        std::fs::remove_dir_all(&device).unwrap();
        fake.first().remove(0, Death::Vanish);
        assert!(!port.is_open(now) && port.fabric.is_none());
        fake.first().put_back(0);
        plug("4: ACTIVE");
        assert!(port.is_open(now));
        // A device without links is watched, too.
        let renewals = port.stats.renewals;
        port.poll(now, 1, &mut mx_sim::Recorder::default());
        std::fs::remove_dir_all(&device).unwrap();
        let due = port.deadline().unwrap();
        port.poll(due, 1, &mut mx_sim::Recorder::default());
        assert_eq!(port.stats.renewals, renewals + 1);
        std::fs::remove_dir_all(&classes).unwrap();
        drop(port);
        fake.assert_clean();
    }

    #[test]
    fn a_peer_that_asks_and_does_not_read_makes_one_answer_wait() {
        let fake = Fake::new(Shape::tcp(), 1);
        let options = RdmOptions {
            library: Some(fake.library()),
            ..RdmOptions::default()
        };
        let mut port = RdmPort::open(options).unwrap();
        let (id, _) = port.offer(MonotonicClock.now()).unwrap();
        for _ in 0..1000 {
            port.queue_control(id, FrameKind::Pong, &[]);
            port.queue_control(id, FrameKind::Pong, &frame::AT_ONCE);
            port.queue_control(id, FrameKind::HelloAck, &[]);
        }
        assert_eq!(port.links.of(id).unwrap().control.len(), 3);
        port.queue_control(id, FrameKind::Reading, &[1]);
        port.queue_control(id, FrameKind::Reading, &[1]);
        assert_eq!(port.links.of(id).unwrap().control.len(), 5);
    }
}
