//! Settings of an endpoint, and their defaults.

use crate::event::Identity;
use crate::flow;
use crate::ids::NicId;
use crate::origin::Source;
use crate::secret::Secret;
use crate::supply::Supply;
use std::fmt;
use std::time::Duration;

/// Settings of one endpoint. The C boundary fills them from the environment.
#[derive(Clone, Debug)]
pub struct Config {
    /// Messages up to this many bytes travel with their data at once, those above 32 KiB only
    /// over a port that [asks where they go](crate::port::Limits::streamed_max); larger ones are
    /// offered and pulled.
    pub eager_max: usize,
    /// Memory for messages without a receive, of all remotes together, including 320 bytes of
    /// bookkeeping for each, in credits of 512 bytes. Two messages of at most one credit for every
    /// remote are not counted. A remote without credits offers its messages instead of sending
    /// them, or waits.
    pub unexpected_bytes: usize,
    /// The credits lent to a remote when it connects, while there are enough.
    pub first_credits: u16,
    /// Bytes of the largest message of the [inbox](crate::Verdict::Inbox) that is fetched when it was only
    /// offered. So much of `unexpected_bytes` is never lent, an eighth at least and seven at most; a
    /// message that is larger than that is thrown away.
    pub fetched_max: u32,
    /// The time that a connect, or a transfer whose message has been matched, may go without any
    /// progress, unless [`crate::Endpoint::set_request_timeout`] sets another. `None` and more than
    /// 49 days: unlimited. 20 s is the value of the C method.
    pub request_timeout: Option<Duration>,
    /// Time-out of a send that waits for its turn or its receiver. For MX that is part of the same
    /// time-out; a BMI server may take its time as long as it lives.
    pub waiting_timeout: Option<Duration>,
    /// The time without a packet after which a remote is lost if there are operations with it,
    /// receives of [its messages](crate::Endpoint::recv_from) included. `None`: unlimited, as in
    /// MX. The same default for all networks: TCP and fabrics detect dead peers within the same
    /// time.
    pub peer_timeout: Option<Duration>,
    /// Packets taken in by one progress call, so that it stays short.
    pub poll_budget: usize,
    /// Packets given out to one remote before it is the next one's turn.
    pub burst: usize,
    /// [Copies](crate::SendMode::Buffered) of messages to one remote that may wait for its link: as
    /// many as a server answers at once, and less than a window of sends that are to wait. Programs for
    /// MX have no such limit: small sends complete while the peer computes and takes nothing in.
    pub copies: usize,
    /// A message that could go with its data if there were credits is not announced before the remote
    /// has been asked for some and has answered. So messages to a remote that has credits to lend go in
    /// order, with their data; for MX, where two programs may each send many small messages before they
    /// receive any. A method whose large messages are mostly expected announces at once.
    pub ask_before_announcing: bool,
    /// Remotes at the same time; strangers beyond it are refused.
    pub max_remotes: usize,
    /// Percent, 1 to 100, of the places and credits that others leave which remotes from one source
    /// may have.
    pub source_share: u8,
    /// Messages that may wait here although their sender has gone, all senders together. Programs
    /// for MX send, exit, and expect the message to be received later; a BMI host takes its
    /// messages over as they come, and an expected one of a lost peer is to be discarded.
    pub keep_tombstones: usize,
    /// The key of the tokens in this endpoint's hellos: drawn when it is opened, and secret.
    pub key: Key,
    /// The site's secret: peers that do not prove it are refused, and not accepted when they answer
    /// a connect. `None`: no proof is needed.
    pub secret: Option<Secret>,
    /// The text of a place for the log. Only ports have addresses.
    pub name_of: fn(NetworkId) -> String,
    /// The supply of memory.
    pub supply: Supply,
    /// Peers that offer the same may reach [registered memory](crate::Endpoint::register) of this endpoint, and it theirs.
    pub regions: bool,
    /// A connect that meets the end of a session goes to the endpoint's next one instead of
    /// failing with it. Programs for MX open an endpoint id again right after its end, and the
    /// others connect to it at once, whether their library has noticed that end or not. Such connects
    /// take any route ([`crate::Route::AUTO`]).
    pub connect_again: bool,
}

/// A place on the network, as the protocol knows it: a number of the ports'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkId {
    /// An interface.
    Nic(NicId),
    /// The source of a link.
    Source(Source),
    /// A user of this machine.
    User(u32),
}

/// Bytes of the largest message that is copied as a whole on its way, in a packet or to wait for its
/// link. 32 KiB is MX's limit for what goes at once, and programs written for it rely on it.
pub(crate) const SMALL_MAX: usize = 32 << 10;

impl Config {
    /// Bytes of the largest message that goes with its data wherever it goes.
    pub(crate) fn small_max(&self) -> usize {
        self.eager_max.min(SMALL_MAX)
    }

    /// The settings of flow control.
    pub(crate) fn flow(&self) -> flow::Settings {
        flow::Settings {
            bytes: self.unexpected_bytes,
            largest: self.fetched_max,
            first: self.first_credits,
            source_share: self.source_share,
        }
    }

    /// The text of an endpoint for the log.
    pub(crate) fn name(&self, who: &Identity) -> String {
        let nic = (self.name_of)(NetworkId::Nic(who.nic));
        format!("{nic} endpoint {}", who.endpoint.0)
    }
}

/// A secret of one life of an endpoint. It is not printed.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Key(pub [u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eager_max: 1 << 20,
            unexpected_bytes: 64 << 20,
            first_credits: flow::FIRST,
            fetched_max: 0,
            request_timeout: Some(Duration::from_secs(20)),
            waiting_timeout: None,
            peer_timeout: Some(Duration::from_secs(20)),
            poll_budget: 64,
            burst: 16,
            copies: 16,
            ask_before_announcing: false,
            max_remotes: 1 << 20,
            source_share: 50,
            keep_tombstones: 0,
            key: Key::default(),
            secret: None,
            name_of: |place| format!("{place:?}"),
            supply: Supply::ENDLESS,
            regions: false,
            connect_again: false,
        }
    }
}
