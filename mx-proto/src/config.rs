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
    /// Size in bytes of the largest message sent eagerly. Messages above 32 KiB are sent eagerly only over a port that
    /// [asks where to place them](crate::port::Limits::streamed_max); larger ones are offered and pulled (rendezvous).
    pub eager_max: usize,
    /// Memory for unexpected messages of all remotes together, including 320 bytes of bookkeeping each, in credits of
    /// 512 bytes. Two messages of at most one credit from each remote are not counted. A remote without credits offers
    /// its messages instead of sending their data, or waits.
    pub unexpected_bytes: usize,
    /// Number of credits of 512 bytes lent to a new remote, while there are enough.
    pub first_credits: u16,
    /// Size in bytes of the largest offered message of the [inbox](crate::Verdict::Inbox) that is fetched; larger ones
    /// are discarded. This much of `unexpected_bytes`, but between one and seven eighths of it, is never lent.
    pub fetched_max: u32,
    /// Longest time that a connect or a matched transfer may make no progress, unless
    /// [`crate::Endpoint::set_request_timeout`] sets another. `None` and more than 49 days: unlimited. The default of
    /// 20 s is that of the C method.
    pub request_timeout: Option<Duration>,
    /// Time-out of a send that waits for its turn or its receiver; `None`: unlimited. In MX the request time-out covers
    /// this wait; a BMI server may take any time as long as it is alive.
    pub waiting_timeout: Option<Duration>,
    /// Time without a packet after which a remote with operations is lost; [receives from
    /// it](crate::Endpoint::recv_from) count as operations. `None`: unlimited, as in MX. All networks have the same
    /// default; TCP and fabrics detect dead peers within this time, too.
    pub peer_timeout: Option<Duration>,
    /// Maximum number of packets handled by one progress call, so that the call stays short.
    pub poll_budget: usize,
    /// Maximum number of packets sent to one remote before the next remote's turn.
    pub burst: usize,
    /// Maximum number of [copies](crate::SendMode::Buffered) queued for one remote: enough for the replies that a
    /// server sends together, and less than a window of sends that have to wait. Programs for MX have no such limit,
    /// because small sends complete while the peer computes and receives nothing.
    pub copies: usize,
    /// Sends a request for credits, and waits for the answer, before it announces a message that could carry its data
    /// if there were credits. Messages to a remote with credits to lend then go in order, with their data: MX needs
    /// this, because two programs may each send many small messages before they receive any. A method whose large
    /// messages are mostly expected announces at once.
    pub ask_before_announcing: bool,
    /// Maximum number of remotes. Our connects beyond it fail with
    /// [`ConnectError::NoResources`](crate::port::ConnectError::NoResources), and peers' are refused.
    pub max_remotes: usize,
    /// Percentage, 1 to 100, of the slots and credits left by other sources that the remotes of one source may have.
    pub source_share: u8,
    /// Maximum number of messages kept although their sender is lost, of all senders together. An MX program may send
    /// and exit, and expects its message to be received later. A BMI host takes messages as they arrive, and an
    /// expected message of a lost peer must be discarded.
    pub keep_tombstones: usize,
    /// Secret key, drawn when the endpoint is opened: nonces in hellos and keys of regions are computed from it.
    pub key: Key,
    /// The site's secret. Peers that do not prove that they know it are refused, both when they connect and when they
    /// answer a connect. `None`: no proof is needed.
    pub secret: Option<Secret>,
    /// Returns the text of a network id for the log, such as an address; only ports know addresses.
    pub name_of: fn(NetworkId) -> String,
    /// Memory accounting that is asked before new work is accepted.
    pub supply: Supply,
    /// Offers remote memory access: peers that offer it, too, may reach [registered memory](crate::Endpoint::register)
    /// of this endpoint, and it theirs.
    pub regions: bool,
    /// Redirects a connect whose session turns out to have ended to the endpoint's next life, instead of failing it.
    /// Programs for MX reopen an endpoint id right after closing it, and their peers connect at once, whether their
    /// library has noticed the end or not. Such connects may take any route ([`crate::Route::AUTO`]).
    pub connect_again: bool,
}

/// Number by which the protocol knows a location on the network. The ports assign it and know the address behind it
/// ([`Config::name_of`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkId {
    /// An interface.
    Nic(NicId),
    /// The source of a link.
    Source(Source),
    /// A user of this machine.
    User(u32),
}

/// Size in bytes of the largest message that is copied whole on its way, in a packet or to wait for its link. 32 KiB is
/// MX's limit for eager messages, and programs written for MX rely on it.
pub(crate) const SMALL_MAX: usize = 32 << 10;

impl Config {
    /// Returns the size of the largest message that is sent eagerly over any port.
    pub(crate) fn small_max(&self) -> usize {
        self.eager_max.min(SMALL_MAX)
    }

    pub(crate) fn flow(&self) -> flow::Settings {
        flow::Settings {
            bytes: self.unexpected_bytes,
            largest: self.fetched_max,
            first: self.first_credits,
            source_share: self.source_share,
        }
    }

    pub(crate) fn name(&self, who: &Identity) -> String {
        let nic = (self.name_of)(NetworkId::Nic(who.nic));
        format!("{nic} endpoint {}", who.endpoint.0)
    }
}

/// Secret key that an endpoint draws each time it is opened, and never sends: nonces in its hellos and challenges, and
/// the keys of its memory regions, are computed from it. `Debug` does not print the bytes.
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
