//! The address exchange: asks a peer for its endpoint address over TCP before a link over
//! libfabric.
//!
//! ```text
//!   asker                                         answerer
//!   a link is reserved
//!   a TCP link is made ------------------------->
//!   LOCATE, our address --------------------------->  its address exchange, not its endpoint
//!                                                  rdm: a link is made there; dgram: nothing
//!   the link greets <------- ANSWER, its address ---
//!   the TCP link ends, or watches over the link    the same
//!
//!   no endpoint address, or no answer in 5 s: the link goes down, Elsewhere(tcp)
//! ```
//!
//! With a site's secret, endpoint addresses are given only after a proof:
//!
//! ```text
//!   HAIL --------------------------------------->
//!        <------------------------------ NONCE     its own; it keeps nothing for it
//!   LOCATE, our nonce, proof, our endpoint address --------->  nothing is made before the proof is right
//!        <------------------ proof, its endpoint address ---   no Hello before that proof is right
//! ```
//!
//! It is used for links of `rdm`, and for those of `dgram` where the provider's addresses do not
//! follow from host and number.
//!
//! A peer of an older version takes the question for a violation and closes the link, which is an
//! answer too. The asking side is always a stranger: the fabric's port bounds what it reserves, and its
//! TCP link stays a stranger's as long as the link over the fabric is one. If either side does not want to
//! have it watch over that link (`watches`), it is closed with the answer.
//!
//! An endpoint address is kept with the address at the other end of the TCP link, which is all that
//! the network proves of the peer.
//!
//! Owns: the TCP links of the exchange and those that watch, the links that wait for an answer.
//! Not here: libfabric; endpoint addresses are made and used by [`Addresses`].

mod guard;
mod packet;
mod trouble;
mod watches;

pub(super) use packet::{What, recognise};
pub(super) use trouble::Peer;

use super::host_port::LAZY;
use guard::{Guard, Proven};
use mx_port_base::origin::Origin;
use mx_port_base::ports::{RDM, ROUTE_TCP};
use mx_port_fabric::Addresses;
use mx_port_fabric::endpoint_address::{
    ANSWER_MAX, Answer, ENDPOINT_ADDRESS_MAX, EndpointAddress, Refusal,
};
use mx_port_tcp::TcpPort;
use mx_proto::log_limit::LogLimit;
use mx_proto::port::{Close, ConnectError, HeaderBytes, LinkControl, LinkDown, SendError};
use mx_proto::secret::{Nonce, PROOF_LEN, Secret};
use mx_proto::shares::Shares;
use mx_proto::time::PeerDeadline;
use mx_proto::{Instant, LinkId, Target, origin};
use packet::{For, bytes_of, send};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use trouble::{Line, Trouble};
use watches::Watches;

/// A stranger's first packet fits TCP's limit for strangers.
const _: () = assert!(mx_port_tcp::STRANGER_MAX > ENDPOINT_ADDRESS_MAX);

/// The time-out of a peer's answer after it has accepted the connection: its process has to poll
/// once.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A TCP link of the exchange, on the asking side.
#[derive(Debug)]
struct Asking {
    /// The link that waits for it.
    link: LinkId,
    progress: Progress,
    /// The answerer's nonce.
    nonce: Option<Nonce>,
    /// The proof sent to it.
    proven: Option<Proven>,
    /// Its address, once it has been asked.
    peer: Option<SocketAddr>,
    /// It was told that we would keep the TCP link.
    watched: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Dialling,
    Hailed,
    Asked,
    Answered,
}

/// A link on its way up.
#[derive(Debug)]
struct Attempt {
    target: Target,
    /// The address asks for this port: no other one will do.
    strict: bool,
    /// The TCP link of the question; `None`: the address is known.
    tcp: Option<LinkId>,
    /// The reason why the link cannot be made, and the peer's provider.
    trouble: Option<(Trouble, String)>,
    /// The reason for giving the link up, which its port may not be able to report.
    reason: Option<LinkDown>,
}

/// The open ports whose peers are looked for, from [`RDM`] on.
pub(super) struct Askers<'a>(pub(super) [Option<&'a mut dyn Addresses>; LAZY]);

impl Askers<'_> {
    fn of(&mut self, of: For) -> Option<&mut dyn Addresses> {
        let port = self.0.get_mut(usize::from(of.port() - RDM))?;
        port.as_mut().map(|port| &mut **port as _)
    }
}

/// Finds peers, and is found.
#[derive(Debug)]
pub(super) struct AddressExchange {
    /// By the TCP link.
    asking: HashMap<LinkId, Asking>,
    /// By the link that waits.
    attempts: HashMap<LinkId, Attempt>,
    /// The ends of waiting for answers, in order. Some may have come.
    deadlines: VecDeque<(PeerDeadline, LinkId)>,
    watches: Watches,
    logged: LogLimit<(Peer, For, Trouble)>,
    /// The check of proofs; `None`: none is needed.
    guard: Option<Guard>,
    /// Addresses that have failed the check.
    suspects: LogLimit<IpAddr>,
}

impl AddressExchange {
    /// An exchange over a TCP port with such places, of which its watches may have a part.
    pub(super) fn new(places: &Shares) -> Self {
        Self {
            asking: HashMap::new(),
            attempts: HashMap::new(),
            deadlines: VecDeque::new(),
            watches: Watches::new(places),
            logged: LogLimit::default(),
            guard: None,
            suspects: LogLimit::default(),
        }
    }

    /// Requires proofs of the secret from both sides from now on. Nonces follow from the key.
    pub(super) fn guard(&mut self, secret: Secret, key: [u8; 16]) {
        self.guard = Some(Guard::new(secret, key));
    }

    /// A link to an address that the port knows is being made. `strict`: only this port may be
    /// used.
    pub(super) fn expect(&mut self, link: LinkId, (target, strict): (Target, bool)) {
        let attempt = Attempt {
            target,
            strict,
            tcp: None,
            trouble: None,
            reason: None,
        };
        self.attempts.insert(link, attempt);
    }

    /// Starts the exchange for a link; after an error the caller has to close the link.
    pub(super) fn search(
        &mut self,
        link: LinkId,
        target: (Target, bool),
        tcp: &mut TcpPort,
        now: Instant,
    ) -> Result<(), ConnectError> {
        let carrier = tcp.connect(target.0, now)?;
        let asking = Asking {
            link,
            progress: Progress::Dialling,
            nonce: None,
            proven: None,
            peer: None,
            watched: false,
        };
        self.asking.insert(carrier, asking);
        self.expect(link, target);
        if let Some(attempt) = self.attempts.get_mut(&link) {
            attempt.tcp = Some(carrier);
        }
        Ok(())
    }

    /// The endpoint has bound a link: it is no stranger's any more, nor is the one that watches over it.
    pub(super) fn keep(&mut self, link: LinkId, tcp: &mut TcpPort) {
        if let Some(carrier) = self.watches.of(link)
            && !tcp.keep(carrier)
        {
            self.watches.remove(carrier);
            tcp.close(carrier, Close::Now);
        }
    }

    /// The endpoint has closed a link.
    pub(super) fn forget(&mut self, link: LinkId, tcp: &mut TcpPort) {
        self.watches.fade(link);
        if let Some(attempt) = self.attempts.remove(&link)
            && let Some(carrier) = attempt.tcp
            && self.asking.remove(&carrier).is_some()
        {
            tcp.close(carrier, Close::Now);
        }
    }

    /// The time at which [`AddressExchange::run`] should be called although nothing arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| deadline.at())
    }

    /// Handles time-outs, and links whose watch has ended. Returns true when there was any.
    #[inline]
    pub(super) fn run(&mut self, ports: Askers<'_>, tcp: &mut TcpPort, now: Instant) -> bool {
        let idle = self.deadlines.is_empty() && !self.watches.any_fading();
        !idle && self.work(ports, tcp, now)
    }

    #[cold]
    fn work(&mut self, mut ports: Askers<'_>, tcp: &mut TcpPort, now: Instant) -> bool {
        let mut did = false;
        if self.watches.any_fading() {
            let mut is_left = |link| ports.of(For::of(link)).is_some_and(|port| port.has(link));
            for carrier in self.watches.gone(&mut is_left) {
                tcp.close(carrier, Close::Now);
            }
        }
        while let Some(&(mut deadline, link)) = self.deadlines.front() {
            let due = deadline.at();
            let over = deadline.is_over(now) || !self.asking.contains_key(&link);
            let put_off = deadline.at() != due;
            if !over && !put_off {
                break;
            }
            self.deadlines.pop_front();
            if !over {
                self.deadlines.push_back((deadline, link));
                continue;
            }
            if let Some(asking) = self.asking.remove(&link) {
                did = true;
                tcp.close(link, Close::Now);
                self.fail(&mut ports, asking.link, Trouble::Silent, String::new());
            }
        }
        did
    }

    /// Sends our endpoint address, or asks what is to be proven with it.
    pub(super) fn ask(
        &mut self,
        (mut ports, tcp): (Askers<'_>, &mut TcpPort),
        link: LinkId,
        now: Instant,
    ) {
        let Some(asking) = self.asking.get_mut(&link) else {
            return;
        };
        let of = For::of(asking.link);
        let (what, begins) = match (asking.progress, &self.guard, asking.nonce) {
            (Progress::Dialling, None, _) => (What::Question(of), true),
            (Progress::Dialling, Some(_), _) => (What::Hail(of), true),
            (Progress::Hailed, Some(_), Some(_)) => (What::Question(of), false),
            _ => return,
        };
        let endpoint_address = ports
            .of(of)
            .and_then(|port| port.endpoint_address(asking.link));
        let Some(mut endpoint_address) = endpoint_address else {
            self.asking.remove(&link);
            tcp.close(link, Close::Now);
            return;
        };
        // Links over datagrams begin with their first packet: there may be none to watch over.
        asking.watched = of == For::Rdm && self.watches.may_add(origin::Source::TRUSTED);
        endpoint_address.watched = asking.watched;
        let (bytes, proven) = match (&mut self.guard, what, asking.nonce) {
            (Some(guard), What::Question(_), Some(theirs)) => {
                let (bytes, proven) = guard.question(of, &endpoint_address.emit(), theirs);
                (bytes, Some(proven))
            }
            (_, What::Hail(_), _) => (Vec::new(), None),
            _ => (endpoint_address.emit(), None),
        };
        match send(tcp, link, what, &bytes) {
            Ok(_) => {
                asking.proven = proven;
                asking.peer = address_of(tcp, link);
                asking.progress = match what {
                    What::Hail(_) => Progress::Hailed,
                    _ => Progress::Asked,
                };
                if begins {
                    let deadline = PeerDeadline::new(now.after(TIMEOUT));
                    self.deadlines.push_back((deadline, link));
                }
            }
            // It says when there is room, or that it is down.
            Err(SendError::WouldBlock | SendError::Down) => {}
        }
    }

    /// Whether the TCP link is one of the exchange's, on the asking side.
    #[inline]
    pub(super) fn is_asking(&self, link: LinkId) -> bool {
        !self.asking.is_empty() && self.asking.contains_key(&link)
    }

    /// The TCP link watches over another link. What comes on it means nothing.
    #[inline]
    pub(super) fn is_watching(&self, link: LinkId) -> bool {
        self.watches.has(link)
    }

    /// The number of TCP links that watch.
    pub(super) fn watch_count(&self) -> usize {
        self.watches.len()
    }

    /// A link over the fabric is down.
    #[inline]
    pub(super) fn on_link_down(&mut self, link: LinkId) {
        self.watches.fade(link);
    }

    /// A packet has come on a link of the address exchange's.
    #[cold]
    pub(super) fn on_answer(
        &mut self,
        (mut ports, tcp): (Askers<'_>, &mut TcpPort),
        link: LinkId,
        header: &HeaderBytes,
        now: Instant,
    ) {
        let Some(asking) = self.asking.get_mut(&link) else {
            return;
        };
        if asking.progress == Progress::Answered {
            return;
        }
        let what = recognise(header);
        if what == Some((What::Nonce, true))
            && asking.progress == Progress::Hailed
            && asking.nonce.is_none()
            && let Some(nonce) = bytes_of(tcp.lent(), size_of::<Nonce>())
            && let Ok(nonce) = Nonce::try_from(nonce)
        {
            asking.nonce = Some(nonce);
            return self.ask((ports, tcp), link, now);
        }
        asking.progress = Progress::Answered;
        let bytes = match what {
            Some((What::Answer, true)) => bytes_of(tcp.lent(), PROOF_LEN + ANSWER_MAX),
            _ => None,
        };
        let answer = bytes.and_then(|bytes| match &self.guard {
            Some(guard) => guard.answered(asking.proven.as_ref(), &bytes),
            None => Answer::parse(&bytes),
        });
        if !self.take(&mut ports, link, answer, now) {
            tcp.close(link, Close::Now);
        }
    }

    /// A stranger has asked; `known`: in our version. Returns true when its link is no more the endpoint's.
    #[cold]
    pub(super) fn on_question(
        &mut self,
        (mut ports, tcp): (Askers<'_>, &mut TcpPort),
        (of, known): (For, bool),
        link: LinkId,
        now: Instant,
    ) -> bool {
        let bytes = bytes_of(tcp.lent(), guard::BEFORE_ADDRESS + ENDPOINT_ADDRESS_MAX);
        self.reply((of, ports.of(of)), tcp, link, bytes.filter(|_| known), now);
        self.has_ended(tcp, link)
    }

    /// A stranger has a secret. Returns true when its link is no more the endpoint's.
    #[cold]
    pub(super) fn on_hail(
        &mut self,
        (mut ports, tcp): (Askers<'_>, &mut TcpPort),
        of: For,
        link: LinkId,
    ) -> bool {
        self.welcome(ports.of(of), tcp, link);
        self.has_ended(tcp, link)
    }

    /// Says what is to be proven.
    fn welcome(&self, port: Option<&mut dyn Addresses>, tcp: &mut TcpPort, link: LinkId) {
        let Some(guard) = &self.guard else {
            let provider = port.map_or("", |port| port.provider());
            let answer = none(Refusal::NoSecret, provider);
            return answer_and_close(tcp, link, &answer.emit());
        };
        if send(tcp, link, What::Nonce, &guard.nonce_for(link)).is_err() {
            tcp.close(link, Close::Now);
        }
    }

    /// Answers a stranger, whose link ends with it unless it is to watch.
    fn reply(
        &mut self,
        (of, port): (For, Option<&mut dyn Addresses>),
        tcp: &mut TcpPort,
        link: LinkId,
        bytes: Option<Vec<u8>>,
        now: Instant,
    ) {
        // A peer that has gone gets no answer.
        let Some(from) = address_of(tcp, link) else {
            return;
        };
        let Some(guard) = &self.guard else {
            let endpoint_address = bytes.and_then(|bytes| EndpointAddress::parse(&bytes));
            let (watched, answer) = self.answer_to(port, endpoint_address, from, now);
            log::debug!("link {link:?} asks for the fabric: {answer:?}");
            return self.answer(tcp, (link, from), watched, &answer.emit());
        };
        let question = bytes.and_then(|bytes| guard.asked(of, link, &bytes));
        let Some((endpoint_address, proven)) = question else {
            let who = from.ip();
            if self.suspects.is_first(who) {
                log::warn!(
                    "{who} asks for the {of} port and does not know our secret: refused; \
                     MX_SECRET_FILE has to hold the same on all machines"
                );
            }
            let provider = port.map_or("", |port| port.provider());
            let answer = none(Refusal::Secret, provider);
            return answer_and_close(tcp, link, &answer.emit());
        };
        let endpoint_address = EndpointAddress::parse(&endpoint_address);
        let (watched, answer) = self.answer_to(port, endpoint_address, from, now);
        log::debug!("link {link:?} asks for the fabric: {answer:?}");
        let bytes = guard.answer(&proven, &answer.emit());
        self.answer(tcp, (link, from), watched, &bytes);
    }

    /// The answer to a stranger from that address, and the link that its TCP link is to watch over.
    fn answer_to(
        &self,
        port: Option<&mut dyn Addresses>,
        theirs: Option<EndpointAddress>,
        from: SocketAddr,
        now: Instant,
    ) -> (Option<LinkId>, Answer) {
        let (port, theirs) = match (port, theirs) {
            (None, _) => return (None, none(Refusal::NoPort, "")),
            (Some(port), None) => return (None, none(Refusal::NotUnderstood, port.provider())),
            (Some(port), Some(theirs)) => (port, theirs),
        };
        match port.answer(&theirs, from, now) {
            Ok((link, mut ours)) => {
                let may = theirs.watched && self.watches.may_add(Origin::Address(from).source());
                ours.watched = may && link.is_some();
                (link.filter(|_| may), Answer::EndpointAddress(ours))
            }
            Err(why) => (None, none(why, port.provider())),
        }
    }

    /// Sends an answer to that stranger. Its link then watches over the one that was `watched` for, or ends.
    fn answer(
        &mut self,
        tcp: &mut TcpPort,
        (link, from): (LinkId, SocketAddr),
        watched: Option<LinkId>,
        bytes: &[u8],
    ) {
        match watched {
            Some(watched) if send(tcp, link, What::Answer, bytes).is_ok() => {
                let source = Origin::Address(from).source();
                self.watches.add(link, watched, source);
            }
            _ => answer_and_close(tcp, link, bytes),
        }
    }

    /// Whether a stranger's link has been closed, or is kept for something else. The endpoint hears of that: what came
    /// on it before the question may have been an introduction, which must not wait any longer.
    fn has_ended(&self, tcp: &TcpPort, link: LinkId) -> bool {
        self.watches.has(link) || address_of(tcp, link).is_none()
    }

    /// Returns true when the TCP link watches from now on.
    fn take(
        &mut self,
        ports: &mut Askers<'_>,
        carrier: LinkId,
        answer: Option<Answer>,
        now: Instant,
    ) -> bool {
        let Some(asking) = self.asking.remove(&carrier) else {
            return false;
        };
        let Asking { link, peer, .. } = asking;
        let (Some(port), Some(attempt)) = (ports.of(For::of(link)), self.attempts.get(&link))
        else {
            return false;
        };
        match (answer, peer) {
            (Some(Answer::EndpointAddress(endpoint_address)), Some(peer))
                if endpoint_address.provider == port.provider() =>
            {
                port.greet((link, attempt.target), &endpoint_address, peer, now);
                let both = asking.watched && endpoint_address.watched;
                // Others may have been answered meanwhile.
                if both && self.watches.may_add(origin::Source::TRUSTED) {
                    self.watches.add(carrier, link, origin::Source::TRUSTED);
                    return true;
                }
            }
            (Some(Answer::EndpointAddress(endpoint_address)), Some(_)) => {
                let trouble = Trouble::Refused(Refusal::Provider);
                self.fail(ports, link, trouble, endpoint_address.provider);
            }
            (Some(Answer::None { why, provider }), _) => {
                self.fail(ports, link, Trouble::Refused(why), provider);
            }
            // An endpoint address that was not asked for counts as none.
            (None | Some(Answer::EndpointAddress(_)), _) => {
                self.fail(ports, link, Trouble::Puzzled, String::new());
            }
        }
        false
    }

    /// A TCP link went down before there was an answer, or while it watched.
    pub(super) fn lost(
        &mut self,
        mut ports: Askers<'_>,
        carrier: LinkId,
        reason: LinkDown,
        now: Instant,
    ) {
        let ports = &mut ports;
        if let Some(link) = self.watches.remove(carrier)
            && matches!(reason, LinkDown::Closed | LinkDown::Reset)
            && let Some(port) = ports.of(For::of(link))
        {
            log::debug!("link {link:?}: its peer may have gone");
            return port.doubt(link, now);
        }
        let Some(Asking { link, progress, .. }) = self.asking.remove(&carrier) else {
            return;
        };
        match progress {
            // The peer is not there, over any port.
            Progress::Dialling => self.give_up(ports, link, reason),
            // The answer is dealt with.
            Progress::Answered => {}
            Progress::Hailed | Progress::Asked => {
                self.fail(ports, link, Trouble::Puzzled, String::new())
            }
        }
    }

    fn fail(&mut self, ports: &mut Askers<'_>, link: LinkId, trouble: Trouble, theirs: String) {
        if let Some(attempt) = self.attempts.get_mut(&link) {
            attempt.trouble = Some((trouble, theirs));
        }
        self.give_up(ports, link, LinkDown::Elsewhere(ROUTE_TCP));
    }

    fn give_up(&mut self, ports: &mut Askers<'_>, link: LinkId, reason: LinkDown) {
        if let (Some(port), Some(attempt)) = (ports.of(For::of(link)), self.attempts.get_mut(&link))
        {
            attempt.reason = Some(reason);
            port.give_up((link, attempt.target), reason);
        }
    }

    /// Handles the end of an attempt when a link is up or down, and returns the event for the
    /// endpoint. `None`: it is up, or was no attempt.
    ///
    /// A peer without a dgram port looks the same over UDP as no peer at all; TCP tells the
    /// difference.
    pub(super) fn end_attempt(
        &mut self,
        ours: &str,
        link: LinkId,
        end: Option<LinkDown>,
    ) -> Option<LinkDown> {
        let attempt = self.attempts.remove(&link)?;
        let (peer, of) = (Peer::of(attempt.target), For::of(link));
        let end = attempt.reason.or(end)?;
        let unheard = attempt.reason.is_none()
            && of == For::Dgram
            && matches!(
                end,
                // The last: it speaks another version there.
                LinkDown::Refused | LinkDown::Unreachable | LinkDown::TimedOut | LinkDown::Protocol
            );
        let route = match end {
            LinkDown::Elsewhere(route) => route,
            _ if unheard => ROUTE_TCP,
            _ => return Some(end),
        };
        if attempt.tcp.is_none() {
            if attempt.strict {
                return Some(end);
            }
            if self.logged.is_first((peer, of, Trouble::Unheard)) {
                log::info!("{peer}: over {of} {end}: trying tcp");
            }
            return Some(LinkDown::Elsewhere(route));
        }
        let (trouble, theirs) = attempt.trouble.unwrap_or((Trouble::Unheard, String::new()));
        // Each way of failing once for each peer.
        if self.logged.is_first((peer, of, trouble)) {
            let line = Line {
                peer,
                of,
                ours,
                theirs: &theirs,
                trouble,
            };
            if attempt.strict {
                log::warn!("{line}; its address says {of}@, so there is no connection")
            } else {
                log::warn!("{line}: falling back to tcp")
            }
        }
        Some(if attempt.strict {
            LinkDown::Unreachable
        } else {
            LinkDown::Elsewhere(route)
        })
    }
}

fn none(why: Refusal, provider: &str) -> Answer {
    Answer::None {
        why,
        provider: provider.to_owned(),
    }
}

fn address_of(tcp: &TcpPort, link: LinkId) -> Option<SocketAddr> {
    match tcp.origin(link) {
        Origin::Address(address) => Some(address),
        _ => None,
    }
}

/// Into an empty socket buffer, from which the kernel delivers it. A peer that has filled the
/// buffer before, or sends on after its question, may miss the answer.
fn answer_and_close(tcp: &mut TcpPort, link: LinkId, bytes: &[u8]) {
    if send(tcp, link, What::Answer, bytes).is_err() {
        log::debug!("link {link:?}: no room for the answer");
    }
    tcp.close(link, Close::Now);
}

/// A question with a valid proof, but for another nonce.
#[cfg(test)]
pub(super) fn question_for_tests(secret: Secret, endpoint_address: &[u8]) -> Vec<u8> {
    let mut guard = Guard::new(secret, [9; 16]);
    guard.question(For::Rdm, endpoint_address, [3; 16]).0
}
