//! Another process at the other end of a fabric: this program again, as "child peer".
//!
//! ```text
//!   this process                      the child
//!     bits TO_PEER   ------------->     received for ever, by four receives
//!     bits FROM_PEER <-------------     sent for ever, four at a time, to whom it heard last
//!     bits NOWHERE   ------------->     never received
//! ```

use crate::node::{self, LONG, Node};
use crate::signal;
use mx_proto::{
    Config, EndpointId, Identity, MatchBits, NicId, RemoteId, Route, SendMode, Status, Target,
};
use mx_sys::{EndpointChoice, OpenOptions, ROUTE_RDM, UserMemory};
use std::io::{BufReader, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Messages the peer receives, and those it sends.
pub(crate) const TO_PEER: u64 = 1;
pub(crate) const FROM_PEER: u64 = 2;
/// Bits that are never received.
pub(crate) const NOWHERE: u64 = 3;

/// The longest of them.
pub(crate) const LARGE: usize = 4 << 20;

/// Over the fabric only, on the loopback, and silence counts as death after `keepalive`.
pub(crate) fn options(endpoint: EndpointChoice, keepalive: Duration) -> OpenOptions {
    let mut options = OpenOptions::new(endpoint);
    options.policy = ROUTE_RDM;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.rdm.keepalive = keepalive;
    options
}

/// The other process. Killed when it is dropped.
pub(crate) struct Peer {
    child: Child,
    pub(crate) identity: Identity,
}

impl Peer {
    /// Starts one, under a certain number if one is given. It says nothing of its own accord where
    /// it is not `busy`.
    pub(crate) fn start(endpoint: Option<EndpointId>, keepalive: Duration, busy: bool) -> Self {
        Self::spawn(endpoint, keepalive, busy, None)
    }

    /// Starts one that connects to `node` and sends to it.
    pub(crate) fn calling(node: &Node, keepalive: Duration) -> Self {
        Self::spawn(None, keepalive, true, Some(node.identity))
    }

    fn spawn(
        endpoint: Option<EndpointId>,
        keepalive: Duration,
        busy: bool,
        to: Option<Identity>,
    ) -> Self {
        let number = endpoint.map_or(-1, |endpoint| i64::from(endpoint.0));
        let (nic, at) = to.map_or((0, -1), |to| (to.nic.0, i64::from(to.endpoint.0)));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "peer", &number.to_string()])
            .args([keepalive.as_millis().to_string(), busy.to_string()])
            .args([nic.to_string(), at.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let identity = node::hear(&mut out);
        Self { child, identity }
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            nic: self.identity.nic,
            endpoint: self.identity.endpoint,
            route: Route::AUTO,
        }
    }

    pub(crate) fn signal(&self, signal: i32) {
        signal::send(&self.child, signal);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The other process.
pub(crate) fn child(args: &[&str]) {
    let [endpoint, keepalive, busy, nic, at] = *args else {
        panic!("{args:?}");
    };
    let endpoint = match endpoint.parse() {
        Ok(number) => EndpointChoice::Exact(EndpointId(number)),
        Err(_) => EndpointChoice::Any,
    };
    let keepalive = Duration::from_millis(keepalive.parse().unwrap());
    let node = Node::open(options(endpoint, keepalive), Config::default(), true).unwrap();
    let target = at.parse().ok().map(|at| Target {
        nic: NicId(nic.parse().unwrap()),
        endpoint: EndpointId(at),
        route: Route::AUTO,
    });
    serve(&node, busy == "true", target);
}

fn serve(node: &Node, busy: bool, target: Option<Target>) {
    node::say(node.identity);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // The parent is gone.
        std::process::exit(0);
    });
    let message = vec![7; LARGE];
    if let Some(target) = target {
        return call(node, target, &message);
    }
    let mut room: Vec<Vec<u8>> = (0..4).map(|_| vec![0; LARGE]).collect();
    for (at, room) in room.iter_mut().enumerate() {
        node.post(TO_PEER, room, at as u64);
    }
    let mut to = None;
    let mut idle: Vec<u64> = (10..14).collect();
    loop {
        let done = node
            .shared
            .wait_for(1, Some(LONG), |engine| engine.done.pop_front());
        let Some(done) = done else { continue };
        if done.context < 4 {
            node.post(TO_PEER, &mut room[done.context as usize], done.context);
            if done.status == Status::Success {
                to = Some(done.remote);
            }
        } else {
            idle.push(done.context);
        }
        if let Some(to) = to.filter(|_| busy) {
            idle.retain(|context| {
                let len = LARGE - 4096 * *context as usize;
                !send(node, to, FROM_PEER, &message[..len], *context)
            });
        }
    }
}

/// Sends to one node for ever, several messages at a time.
fn call(node: &Node, target: Target, message: &[u8]) {
    loop {
        let Ok(to) = node.connect(target) else {
            continue;
        };
        let mut under_way = 0;
        for context in 0..3 {
            under_way += usize::from(send(node, to, TO_PEER, message, context));
        }
        while under_way > 0 {
            let done = node
                .shared
                .wait_for(1, Some(LONG), |engine| engine.done.pop_front());
            let Some(done) = done else { continue };
            // A crowded host may be silent for so long that it is taken for dead.
            let again = done.status == Status::Success;
            if !again || !send(node, to, TO_PEER, message, done.context) {
                under_way -= 1;
            }
        }
    }
}

/// Posts a large send; false when there is no such remote any more.
fn send(node: &Node, to: RemoteId, bits: u64, bytes: &[u8], context: u64) -> bool {
    let start = bytes.as_ptr().cast_mut().cast();
    // SAFETY: what is sent here lives until the process ends; a send only reads.
    let memory = unsafe { UserMemory::new(start, bytes.len()) }.unwrap();
    let mut engine = node.shared.lock();
    let (bits, mode) = (MatchBits(bits), SendMode::Standard);
    engine
        .endpoint
        .send(to, bits, memory, context, mode)
        .is_ok()
}
