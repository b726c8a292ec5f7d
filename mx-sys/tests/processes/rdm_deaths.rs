//! Peers that die, fall silent and come back over the fabric: how soon that is noticed, that nothing
//! of the old life is accepted, and that nothing is left of them.
//!
//! ```text
//!   this process                    the same program as "child peer"
//!     operations of every kind        killed | stopped, and continued | started anew as the same
//!     counts its own descriptors, memory, links
//! ```
//!
//! `RDM_LIVES=1000` has as many clients come and be killed; otherwise it is a few.

use crate::cases;
use crate::node::{LONG, Node};
use crate::peer::{FROM_PEER, LARGE, NOWHERE, Peer, TO_PEER, options};
use mx_proto::port::LinkDown;
use mx_proto::{Config, Down, DownReason, Posted, Received, RemoteId, Status};
use mx_sim::Cancelled;
use mx_sys::RdmError;
use mx_sys::{EndpointChoice, OpenError};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// After so much silence a peer has gone, and after this much more that has been noticed.
const KEEPALIVE: Duration = Duration::from_millis(400);
const NOTICED: Duration = Duration::from_millis(100);

/// The same where nothing is measured.
const PATIENT: Duration = Duration::from_secs(1);

type Case = fn();

const CASES: &[(&str, Case)] = cases::named![
    whatever_was_under_way_ends_in_time_when_the_peer_is_killed,
    whatever_was_under_way_ends_in_time_when_the_peer_is_stopped,
    a_peer_that_was_stopped_for_longer_is_met_anew_when_it_goes_on,
    a_peer_that_was_killed_comes_back_under_its_number,
    clients_that_are_killed_leave_nothing_behind,
];

pub(crate) fn run() -> ExitCode {
    if let Err(OpenError::Rdm(RdmError::NoLibrary(why))) = open() {
        println!("NOT TESTED: {why}");
        return ExitCode::SUCCESS;
    }
    let cases = CASES.iter().map(|(name, case)| ((*name).to_owned(), case));
    cases::run("rdm_deaths", cases)
}

fn whatever_was_under_way_ends_in_time_when_the_peer_is_killed() {
    falls_silent(libc::SIGKILL);
}

fn whatever_was_under_way_ends_in_time_when_the_peer_is_stopped() {
    falls_silent(libc::SIGSTOP);
}

fn open() -> Result<Node, OpenError> {
    Node::open(
        options(EndpointChoice::Any, KEEPALIVE),
        Config::default(),
        true,
    )
}

/// A node and a peer that have exchanged large messages.
fn pair(busy: bool) -> (Node, Peer, RemoteId) {
    let peer = Peer::start(None, KEEPALIVE, busy);
    let node = open().unwrap();
    let to = node.connect(peer.target()).unwrap();
    let bytes = vec![1; LARGE];
    for _ in 0..4 {
        assert_eq!(node.send_all(to, TO_PEER, &bytes), Status::Success);
    }
    (node, peer, to)
}

/// Waits for the end of the remote, and says how long that took from `begin` on.
fn down(node: &Node, begin: Instant) -> Duration {
    let Down { reason, .. } = node.event();
    // By its silence; or sooner, because the provider has missed it, or a frame that came out of its
    // turn never had the one before it.
    let link = matches!(
        reason,
        DownReason::Link(LinkDown::TimedOut | LinkDown::Reset)
    );
    assert!(link, "{reason:?}");
    begin.elapsed()
}

fn falls_silent(signal: i32) {
    for kind in [
        "nothing",
        "receives",
        "small",
        "slots",
        "large",
        "both ways",
    ] {
        let (node, peer, to) = pair(kind == "both ways");
        let bytes = vec![1; LARGE];
        let mut room = vec![0; LARGE];
        let mut ends = Vec::new();
        let mut send = |bits, len, context| {
            if let Posted::Pending(_) = node.send(to, bits, &bytes[..len], context) {
                ends.push(context);
            }
        };
        match kind {
            "small" => (10..20).for_each(|context| send(NOWHERE, 8, context)),
            "slots" => (10..20).for_each(|context| send(NOWHERE, 9_000, context)),
            "large" | "both ways" => (10..13).for_each(|context| send(TO_PEER, LARGE, context)),
            _ => {}
        }
        let mut waiting = None;
        if matches!(kind, "receives" | "both ways")
            && let Received::Pending(request) = node.post(FROM_PEER, &mut room, 9)
        {
            waiting = Some(request);
        }
        peer.signal(signal);
        let silent = Instant::now();
        let after = down(&node, silent);
        println!("  {kind}: after {after:?}");
        assert!(after < KEEPALIVE + NOTICED + slack(), "{kind}: {after:?}");
        for context in ends {
            let status = node.done(context).status;
            let fits = status == Status::Success || is_over(status);
            assert!(fits, "{kind}: {status:?}");
        }
        if let Some(request) = waiting {
            // One that was being filled has ended, another waits for any peer.
            match node.cancel(request) {
                Cancelled::Withdrawn => {}
                _ => drop(node.done(9)),
            }
        }
        assert_eq!(node.shared.lock().endpoint.requests(), 0, "{kind}");
        drop(peer);
        assert_eq!(links(&node), 0, "{kind}");
    }
}

/// Is this the end of an operation that cannot go on?
fn is_over(status: Status) -> bool {
    matches!(status, Status::Timeout | Status::Unreachable)
}

/// The delay of a busy machine: as long as this thread has just been kept from running.
fn slack() -> Duration {
    let begin = Instant::now();
    std::thread::sleep(Duration::from_millis(1));
    4 * begin.elapsed() + Duration::from_millis(100)
}

fn links(node: &Node) -> usize {
    let begin = Instant::now();
    loop {
        let engine = node.shared.lock();
        let ports = engine.endpoint.port();
        let links = ports.rdm().map_or(0, |rdm| rdm.link_count());
        drop(engine);
        if links == 0 || begin.elapsed() > LONG {
            return links;
        }
        node.try_done(77, Duration::from_millis(1));
    }
}

fn a_peer_that_was_stopped_for_longer_is_met_anew_when_it_goes_on() {
    let (node, peer, to) = pair(false);
    let bytes = vec![1; LARGE];
    peer.signal(libc::SIGSTOP);
    node.send(to, TO_PEER, &bytes, 5);
    down(&node, Instant::now());
    assert!(is_over(node.done(5).status));
    peer.signal(libc::SIGCONT);
    let to = node.connect(peer.target()).unwrap();
    for _ in 0..3 {
        assert_eq!(node.send_all(to, TO_PEER, &bytes), Status::Success);
    }
}

fn a_peer_that_was_killed_comes_back_under_its_number() {
    let (node, peer, to) = pair(false);
    let bytes = vec![1; LARGE];
    let (endpoint, session) = (peer.identity.endpoint, peer.identity.session);
    node.send(to, TO_PEER, &bytes, 5);
    drop(peer);
    let peer = Peer::start(Some(endpoint), KEEPALIVE, false);
    assert_ne!(peer.identity.session, session);
    // Whether it is noticed by silence, or by the new one's coming.
    let status = node.done(5).status;
    assert!(status == Status::Success || is_over(status), "{status:?}");
    let begin = Instant::now();
    let to = loop {
        // Until the old one's end has been noticed the new one may not be met.
        match node.connect(peer.target()) {
            Ok(to) => break to,
            Err(why) => assert!(begin.elapsed() < LONG, "{why:?}"),
        }
    };
    for _ in 0..3 {
        assert_eq!(node.send_all(to, TO_PEER, &bytes), Status::Success);
    }
}

fn clients_that_are_killed_leave_nothing_behind() {
    let lives = std::env::var("RDM_LIVES").ok();
    let lives: usize = lives.map_or(12, |text| text.parse().unwrap());
    let node = Node::open(
        options(EndpointChoice::Any, PATIENT),
        Config::default(),
        true,
    )
    .unwrap();
    let mut room: Vec<Vec<u8>> = (0..4).map(|_| vec![0; LARGE]).collect();
    for (at, room) in room.iter_mut().enumerate() {
        node.post(TO_PEER, room, at as u64);
    }
    let slot = vec![3; 9_000];
    let mut after = Vec::new();
    for life in 0..lives {
        let client = Peer::calling(&node, PATIENT);
        let (mut to, mut came) = (None, 0);
        // It has come, and its messages are on their way.
        while came <= life % 3 {
            let done = node
                .shared
                .wait_for(1, Some(LONG), |engine| engine.done.pop_front());
            let done = done.expect("a message");
            if done.context < 4 {
                node.post(TO_PEER, &mut room[done.context as usize], done.context);
                if done.status == Status::Success {
                    (to, came) = (Some(done.remote), came + 1);
                }
            }
        }
        if life % 2 == 0
            && let Some(to) = to
            && node.shared.lock().endpoint.remote_identity(to).is_some()
        {
            // Slots that it will never take from the provider.
            client.signal(libc::SIGSTOP);
            for context in 100..140 {
                node.send(to, NOWHERE, &slot, context);
            }
        }
        drop(client);
        after.push(Left::now());
    }
    assert_eq!(links(&node), 0);
    println!("  after each: {after:?}");
    // The provider's pools grow to what several lives need that have not been buried yet, and have ups
    // and downs of tens of megabytes. What is left behind stays and adds up.
    let residents = |of: &[Left]| of.iter().map(|left| left.resident).collect::<Vec<_>>();
    let (middle, late) = (&after[lives / 3..2 * lives / 3], &after[2 * lives / 3..]);
    let (before, least) = (
        residents(middle),
        residents(late).into_iter().min().unwrap(),
    );
    let most = before.iter().max().unwrap() + (16 << 10) + 2 * (lives as u64);
    assert!(
        least <= most,
        "{before:?} KiB, and then never less than {least}"
    );
    let descriptors = Left::now().descriptors;
    assert!(descriptors <= after[lives / 3].descriptors, "{descriptors}");
    let engine = node.shared.lock();
    let rdm = engine.endpoint.port().rdm().unwrap();
    println!("  {rdm:?}");
    assert_eq!(rdm.stats().renewals, 0, "the living lost their links");
}

/// The resources of this process.
#[derive(Clone, Copy, Debug)]
struct Left {
    descriptors: usize,
    /// KiB.
    resident: u64,
}

impl Left {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.split_whitespace().next());
        Self {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            resident: resident.unwrap().parse().unwrap(),
        }
    }
}
