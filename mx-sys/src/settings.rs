//! Every `MX_` setting: its environment name, default, range and meaning, in one table for both libraries.
//!
//! ```text
//!                          bmi-mx: Config              myriexpress: Settings
//!   rows::<S>()            MX_*                        MX_*
//!   MX_ROWS                                            those of MX programs alone
//!   NA_ROWS              (na-mx: Settings)             those of Mercury's plugin alone
//!   its own                BMI_MX_*
//! ```
//!
//! `docs/tuning.md` shows the same tables; a test compares them.
//!
//! Owns: names, defaults and ranges of the common settings, and their use when an endpoint is opened.

use crate::progress::Tuning;
use crate::route::link_origin;
use crate::route::open::{EndpointChoice, OpenOptions};
use crate::tunable::{self, Field, G, K, M, Reason, Refused, Tunable, Value, ValueKind};
use crate::{choice, tunables};
use mx_port_base::endpoint_port::{self, PortMap};
use mx_port_base::ports::ROUTE_WORDS;
use mx_port_dgram::faults::{self, FaultPlan};
use mx_port_dgram::{BackendChoice, DgramOptions};
use mx_port_fabric::is_elevated;
use mx_port_local::LocalOptions;
use mx_port_rdm::{RdmOptions, Wait};
use mx_proto::Route;
use mx_proto::reliability::ReliableConfig;
use mx_reserve as reserve;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of endpoints, their ports and their threads.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Port to use; an address may choose another one.
    pub port: Route,
    /// First TCP port of the block for endpoints below 1024.
    pub port_base: u16,
    /// Settings of the protocol endpoint.
    pub endpoint: mx_proto::Config,
    /// Whether the time-out of requests applies to unmatched sends, too.
    pub waiting_counts: bool,
    /// Size of the shared memory of an endpoint's links, and when it is freed.
    pub local: LocalOptions,
    /// Time without a packet after which the kernel takes a TCP peer's machine for dead.
    pub tcp_keepalive: Duration,
    /// Maximum number of TCP connections for bulk data per session; 0: none.
    pub tcp_links: u32,
    /// Time that a blocked test call polls before it sleeps in the kernel.
    pub spin: Duration,
    /// Whether a helper thread keeps connections moving while the application computes.
    pub helper: bool,
    /// The only libfabric provider to use; `None`: the best one.
    pub provider: Option<String>,
    /// Options of the rdm port; `wait` applies to the dgram port over a fabric, too.
    pub rdm: RdmOptions,
    /// Options of the dgram port.
    pub dgram: DgramOptions,
    /// Faults injected into received datagrams; `None`: none.
    pub dgram_faults: Option<String>,
    /// File with names and addresses of hosts; `None`: none.
    pub peers: Option<PathBuf>,
    /// File with the site's secret; `None`: none.
    pub secret_file: Option<PathBuf>,
    /// [`Route::AUTO`] does not use shared memory if this or `disable_shared` is set.
    pub disable_shmem: bool,
    /// See `disable_shmem`.
    pub disable_shared: bool,
    /// Disables the helper thread, whatever `helper` is.
    pub monothread: bool,
    /// Whether an error ends an MX program that has set no error handler.
    pub errors_are_fatal: bool,
}

/// Default path of the peers file.
pub const PEERS_FILE: &str = "/etc/mx_peers";

/// Variable that names the peers file.
const PEERS: &str = "MX_PEERS";

/// Variable that names the file with the site's secret.
const SECRET: &str = "MX_SECRET_FILE";

/// Returns the value of an environment variable; `None` if it is not set. Invalid UTF-8 is converted lossily, for the
/// parser to reject.
pub fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Returns the value of a variable outside the tables of settings; `None` in an elevated process, which does not trust
/// its caller.
pub fn trusted_environment(name: &str) -> Option<String> {
    (!is_elevated()).then(|| environment(name)).flatten()
}

/// Names of variables that are read outside the tables of settings: by the logger, libfabric's loader and the example
/// programs. [`unused`] does not report them as unknown; in an elevated process it reports them as ignored.
pub const OTHERS: [&str; 4] = ["MX_LOG", "BMI_MX_LOG", "MX_LIBFABRIC", "BMI_MX_LIBRARY"];

/// Variables of MX 1.2 for features that this library does not have. Some MPI libraries set them before `mx_init`.
pub const MX_WITHOUT_EFFECT: [&str; 11] = [
    "MX_BONDING",
    "MX_CSUM",
    "MX_DISABLE_SELF",
    "MX_FW_ACK",
    "MX_IMM_ACK",
    "MX_NO_MYRINET",
    "MX_PIPELINE_LOG",
    "MX_RCACHE",
    "MX_STATS",
    "MX_ZOMBIE",
    "MX_ZOMBIE_SEND",
];

/// Returns a rejection for each variable among `names` that begins with one of `prefixes` and is in no table of
/// settings (unknown), and in an elevated process also for the [`OTHERS`], which it ignores. Sorted by name.
pub fn unused<'a, S: 'static>(
    rows: impl Iterator<Item = &'a Tunable<S>> + Clone,
    prefixes: &[&str],
    names: impl Iterator<Item = String>,
) -> Vec<Refused> {
    unused_as(is_elevated(), rows, prefixes, names)
}

/// Implements [`unused`] for an `elevated` or an ordinary process.
fn unused_as<'a, S: 'static>(
    elevated: bool,
    rows: impl Iterator<Item = &'a Tunable<S>> + Clone,
    prefixes: &[&str],
    names: impl Iterator<Item = String>,
) -> Vec<Refused> {
    let is_ignored = |name: &str| elevated && OTHERS.contains(&name);
    let is_known = |name: &str| {
        let own = rows.clone().any(|row| row.name == name);
        let others = MX_ROWS.iter().chain(NA_ROWS).any(|row| row.name == name);
        own || others || MX_WITHOUT_EFFECT.contains(&name) || OTHERS.contains(&name)
    };
    let mut names: Vec<String> = names
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .filter(|name| is_ignored(name) || !is_known(name))
        .collect();
    names.sort_unstable();
    let refused = |name: String| {
        if is_ignored(&name) {
            return Refused::elevated(&name);
        }
        Refused {
            name,
            value: String::new(),
            reason: Reason::Unknown,
        }
    };
    names.into_iter().map(refused).collect()
}

/// Returns the names of all variables of the environment.
pub fn variables() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

/// Returns the table of settings that libbmi_mx and libmyriexpress have in common, in the order of the documentation.
/// `S` is a struct of settings that contains [`Settings`].
pub fn rows<S: AsRef<Settings> + AsMut<Settings> + 'static>() -> &'static [Tunable<S>] {
    const {
        &tunables! {
            @as_ref as_mut:
            "MX_PORT", ValueKind::Choice(&ROUTE_WORDS), (port),
                "ports that carry traffic; a prefix of the host in an address, as in `tcp@`, takes \
                 precedence";
            "MX_PORT_BASE", ValueKind::PortNumber(1024, 64512), (port_base),
                "TCP and UDP port of endpoint 0; endpoints below 1024 use the block from here on, and it must be the \
                same on all machines";
            "MX_SPIN_US", ValueKind::Number(0, 1_000_000), [
                |s, v| {
                    if let Value::Number(v) = v {
                        s.as_mut().spin = Duration::from_micros(v);
                    }
                },
                |s| Value::Number(s.as_ref().spin.as_micros() as u64)
            ],
                "microseconds a blocked test call polls before it sleeps in the kernel, while four of five waits end \
                within that time; half as long where a poll makes system calls";
            "MX_HELPER", ValueKind::Switch, (helper),
                "a helper thread, asleep in the kernel, keeps connections moving while the application computes";
            "MX_EAGER_MAX", ValueKind::Bytes(128, 1024 * K), (endpoint.eager_max),
                "messages up to this size are sent with their data at once, over tcp and dgram \
                 those up to 128K, over rdm those up to \
                256K (two slots where the card reads); larger ones are offered and pulled";
            "MX_UNEXPECTED_BYTES", ValueKind::Bytes(M, 64 * G), (endpoint.unexpected_bytes),
                "bytes of messages without a receive, of all peers together; the TCP port keeps a 32nd of that \
                besides for incomplete messages, further ones stay in the kernel; libbmi_mx needs 8/7 of \
                `BMI_MX_UNEXPECTED_MAX` and does not start with less: 4682K, unless that is \
                smaller";
            "MX_REQUEST_TIMEOUT_MS", ValueKind::Number(0, 86_400_000), [
                |s, v| s.as_mut().set_request_timeout(v),
                |s| s.as_ref().endpoint.request_timeout.value()
            ],
                "milliseconds without any progress after which a transfer fails; 0: never";
            "MX_MAX_REMOTES", ValueKind::Number(1, 1 << 20), (endpoint.max_remotes),
                "maximum number of connections; further strangers are rejected";
            "MX_SOURCE_SHARE", ValueKind::Number(1, 100), (endpoint.source_share),
                "percent of the connections, and of the shared memory, not used by others that one machine, or one \
                user of this one, may have; 100: first come, first served";
            "MX_LOCAL_BYTES", ValueKind::Bytes(4 * M, 64 * G), (local.bytes),
                "bytes of shared memory that all links of an endpoint map together; as it is used up, links get \
                smaller rings, idle ones free theirs sooner, and finally messages use Unix \
                sockets, which is slower";
            "MX_LOCAL_IDLE_MS", ValueKind::OrZero(10, 86_400_000), (local.idle),
                "milliseconds without a packet after which a link over shared memory frees its memory until the next \
                one; 0: only when the peer does";
            "MX_TCP_KEEPALIVE_MS", ValueKind::Number(2000, 86_400_000), (tcp_keepalive),
                "milliseconds of silence after which a TCP peer's machine, or the path to it, is taken for dead";
            "MX_TCP_LINKS", ValueKind::Number(0, 16), (tcp_links),
                "TCP connections for bulk data beside that of a session, at most; the side with fewer decides; 0: small \
                messages wait for bulk data of their own peer";
            "MX_PROVIDER", ValueKind::Name, (provider),
                "the libfabric provider of the rdm port, and of the dgram port over libfabric, by its exact name; \
                auto: the best one";
            "MX_RDM_KEEPALIVE_MS", ValueKind::Number(100, 86_400_000), (rdm.keepalive),
                "milliseconds after which a peer that is silent over a fabric is taken for dead";
            "MX_RDM_WAIT", ValueKind::Choice(&["sleep", "poll"]), (rdm.wait),
                "how a blocked test call waits for a fabric: sleep in the kernel, or poll every 1 to 10 ms, which \
                saves some providers work with every message";
            "MX_DGRAM_BACKEND", ValueKind::Choice(&["auto", "udp", "fabric"]), (dgram.backend),
                "the service of the dgram port: the kernel's UDP or libfabric; auto: UDP, unless it is not available";
            "MX_DGRAM_MTU", ValueKind::Number(548, 65_507), (dgram.reliable.datagram_max),
                "largest datagram that is tried, without the headers of IP and UDP";
            "MX_DGRAM_WINDOW", ValueKind::Number(32, 32_768), (dgram.reliable.window),
                "maximum number of datagrams in flight to one peer";
            "MX_DGRAM_GIVE_UP_MS", ValueKind::Number(100, 86_400_000), (dgram.reliable.give_up),
                "milliseconds after which a peer that acknowledges nothing over datagrams is taken for dead";
            "MX_DGRAM_LINKS", ValueKind::Number(0, 1), (dgram.reliable.data_links),
                "datagram sessions for bulk data beside that of a peer, at most; the side with fewer decides; 0: small messages \
                wait for bulk data of their own peer";
            "MX_DGRAM_CHECKSUM", ValueKind::Choice(&["auto", "always"]), (dgram.reliable.always_sum),
                "which datagrams carry a checksum of their contents; auto: those that leave this machine";
            "MX_DGRAM_SOCKET_BYTES", ValueKind::Bytes(64 * K, G), (dgram.receive_buffer),
                "size of the kernel's receive buffer for data; without root at most `net.core.rmem_max`";
            "MX_DGRAM_SEND_BYTES", ValueKind::Bytes(4 * M, 64 * G), (dgram.reliable.send_bytes_all),
                "bytes that wait for acknowledgements over datagrams, of all peers together";
            "MX_DGRAM_EARLY_BYTES", ValueKind::Bytes(M, 64 * G), (dgram.reliable.early_bytes_all),
                "bytes received out of order over datagrams and kept, of all peers together, beyond 8 KiB from each; \
                more are dropped and sent again";
            "MX_DGRAM_FAULTS",
                ValueKind::Formed(faults::WANTED, |text| FaultPlan::parse(text).is_some()),
                (dgram_faults),
                "faults in the datagrams this process receives, by a seeded generator: for tests";
            PEERS, ValueKind::Path, (peers),
                "the file with addresses and names of machines, used before the resolver, read again when it has \
                changed; it need not exist";
            SECRET, ValueKind::Path, (secret_file),
                "the file with the secret of the site, 16 to 4096 bytes, mode 0600 or 0400, of the process's user or \
                root; peers that do not know it are rejected";
        }
    }
}

choice!(BackendChoice: Auto, Udp, Fabric);
choice!(Wait: Fd, Poll);

/// Setting that only Mercury's plugin reads; the BMI method has `BMI_MX_PEER_TIMEOUT_MS` instead.
pub static NA_ROWS: &[Tunable<Settings>] = &tunables! {
    "MX_PEER_TIMEOUT_MS", ValueKind::OrZero(100, 86_400_000), (endpoint.peer_timeout),
        "milliseconds after which a peer that is silent although there are operations with it is lost, and they fail; \
        0: never";
};

/// Settings that only programs for the MX C API read. Such programs set variables for themselves that other users of
/// this machine's ports must not obey.
pub static MX_ROWS: &[Tunable<Settings>] = &tunables! {
    "MX_DISABLE_SHMEM", ValueKind::Switch, (disable_shmem),
        "`MX_PORT=auto` does not use shared memory; peers may use it to connect";
    "MX_DISABLE_SHARED", ValueKind::Switch, (disable_shared),
        "another name of `MX_DISABLE_SHMEM`";
    "MX_MONOTHREAD", ValueKind::Switch, (monothread),
        "no helper thread, whatever `MX_HELPER` is";
    "MX_ERRORS_ARE_FATAL", ValueKind::Switch, (errors_are_fatal),
        "an error ends the process, unless an error handler has been set";
};

impl Default for Settings {
    /// Returns the defaults of the method of file systems.
    fn default() -> Self {
        Self {
            port: Route::AUTO,
            port_base: endpoint_port::DEFAULT_PORT_BASE,
            endpoint: mx_proto::Config {
                name_of: link_origin::name_of,
                supply: reserve::SUPPLY,
                ..mx_proto::Config::default()
            },
            // A live server may take any time to match a send.
            waiting_counts: false,
            local: LocalOptions::default(),
            tcp_keepalive: Duration::from_secs(20),
            tcp_links: 1,
            spin: Tuning::default().spin,
            helper: true,
            provider: None,
            rdm: RdmOptions::default(),
            dgram: DgramOptions::default(),
            dgram_faults: None,
            peers: Some(PathBuf::from(PEERS_FILE)),
            secret_file: None,
            disable_shmem: false,
            disable_shared: false,
            monothread: false,
            errors_are_fatal: true,
        }
    }
}

impl AsRef<Self> for Settings {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AsMut<Self> for Settings {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl Settings {
    /// Returns the defaults of MX programs, whose requests have no time-out until the program sets one.
    pub fn for_mx() -> Self {
        Self {
            endpoint: mx_proto::Config {
                request_timeout: None,
                peer_timeout: None,
                // MX's limit of eager messages. Two programs that each send 32 KiB, wait for completion and then
                // receive must not wait for each other, even if credits that were freed have not been announced yet.
                first_credits: 4 * mx_proto::flow::FIRST,
                eager_max: 32 << 10,
                copies: usize::MAX,
                // Sends to one peer complete in order while the peer lends the credits.
                ask_before_announcing: true,
                // In messages: as many as eight peers may leave here.
                keep_tombstones: 4096,
                connect_again: true,
                ..Self::default().endpoint
            },
            waiting_counts: true,
            ..Self::default()
        }
    }

    /// Returns the defaults of a Mercury plugin, whose peers may access registered memory.
    pub fn for_na() -> Self {
        Self {
            endpoint: mx_proto::Config {
                regions: true,
                ..Self::default().endpoint
            },
            ..Self::default()
        }
    }

    fn set_request_timeout(&mut self, value: Value) {
        self.endpoint.request_timeout.put(value);
        if self.waiting_counts {
            self.endpoint.waiting_timeout = self.endpoint.request_timeout;
        }
    }

    /// Returns the settings of an MX program, [`for_mx`](Self::for_mx) overridden by `environment` (which returns a
    /// variable's value, `None` if it is not set), and the rejected values.
    pub fn load(environment: impl Fn(&str) -> Option<String>) -> (Self, Vec<Refused>) {
        Self::for_mx().load_into(Self::mx_rows(), environment)
    }

    /// Applies `environment` to `rows`. Returns the settings and the rejected values.
    fn load_into(
        mut self,
        rows: impl Iterator<Item = &'static Tunable<Self>> + Clone,
        environment: impl Fn(&str) -> Option<String>,
    ) -> (Self, Vec<Refused>) {
        let refused = tunable::load(rows, &mut self, environment, "");
        self.keep_secret(&refused);
        (self, refused)
    }

    /// Returns the settings of a Mercury plugin, [`for_na`](Self::for_na) overridden by this process's environment, and
    /// the rejected values and unknown variables.
    pub fn of_na() -> (Self, Vec<Refused>) {
        let rows = rows::<Self>().iter().chain(NA_ROWS);
        let (settings, mut refused) = Self::for_na().load_into(rows.clone(), environment);
        refused.extend(unused(rows, &["MX_"], variables()));
        (settings, refused)
    }

    /// Returns the settings of an MX program from this process's environment (see [`load`](Self::load)), and the
    /// rejected values and unknown variables.
    pub fn of_process() -> (Self, Vec<Refused>) {
        let (settings, mut refused) = Self::load(environment);
        refused.extend(unused(Self::mx_rows(), &["MX_"], variables()));
        (settings, refused)
    }

    /// Keeps a rejected path as the secret file, so that opening an endpoint fails instead of doing without a secret.
    /// Exception: an elevated process ignores the path if the host has named another file.
    pub fn keep_secret(&mut self, refused: &[Refused]) {
        let needs_secret = |refused: &&Refused| {
            let ignored = matches!(refused.reason, Reason::Elevated);
            refused.name == SECRET && !(ignored && self.secret_file.is_some())
        };
        if let Some(refused) = refused.iter().find(needs_secret) {
            self.secret_file = Some(PathBuf::from(&refused.value));
        }
    }

    /// Returns all rows for [`load`](Self::load), in the order of the documentation.
    pub fn mx_rows() -> impl Iterator<Item = &'static Tunable<Self>> + Clone {
        rows().iter().chain(MX_ROWS)
    }

    /// Returns options for opening `endpoint` on the first board.
    pub fn open_options(&self, endpoint: EndpointChoice) -> OpenOptions {
        OpenOptions {
            policy: self.port,
            shared_memory: !(self.disable_shmem || self.disable_shared),
            rdm: RdmOptions {
                provider: self.provider.clone(),
                ..self.rdm.clone()
            },
            dgram: DgramOptions {
                reliable: self.reliable_config(),
                // The table accepts only valid plans.
                faults: self.dgram_faults.as_deref().and_then(FaultPlan::parse),
                provider: self.provider.clone(),
                wait: self.rdm.wait,
                ..self.dgram.clone()
            },
            local: self.local,
            source_share: self.endpoint.source_share,
            tcp_keepalive: self.tcp_keepalive,
            tcp_links: self.tcp_links,
            tcp_kept_bytes: self.endpoint.unexpected_bytes / 32,
            secret_file: self.secret_file.clone(),
            // The table accepts only valid bases.
            ports: PortMap::new(self.port_base).unwrap_or_default(),
            ..OpenOptions::new(endpoint)
        }
    }

    /// Returns the datagram port's settings, with those derived from others.
    fn reliable_config(&self) -> ReliableConfig {
        let usual = self.dgram.reliable;
        ReliableConfig {
            // Several keep-alives fit into the time after which a silent peer is given up.
            keepalive: usual.keepalive.min(usual.give_up / 4),
            max_links: self.endpoint.max_remotes,
            ..usual
        }
    }

    /// Returns the settings of waiting threads.
    pub fn tuning(&self) -> Tuning {
        Tuning { spin: self.spin }
    }
}

/// Returns the path of the peers file that `MX_PEERS` in `environment` names, else the default, for a process that has
/// not loaded its settings yet; `None` for no file. [`tunable::load`] reports an invalid value later.
pub fn peers_file(environment: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let only_it = |name: &str| environment(name).filter(|_| name == PEERS);
    Settings::load(only_it).0.peers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunable::{NAME_MAX, PATH_MAX};
    use mx_port_base::ports::{ROUTE_DGRAM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP};

    fn load(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let (settings, refused) = Settings::load(|name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        (settings, refused.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn variables_called_like_settings_are_named_when_they_are_none() {
        let names = "MX_SPINUS PATH MX_SPIN_US MX_LOG BMI_MX_LOG MX_DISABLE_SHMEM BMI_MX_FOO XMX_Y MX_LIBFABRIC \
                     MX_DISABLE_SELF MX_DISABLE_SHARED MX_RCACHE MX_ZOMBIE_SEND MX_MONOTHREAD";
        let unused = |elevated, prefixes: &[&str]| -> Vec<String> {
            let names = names.split(' ').map(str::to_owned);
            let refused = unused_as(elevated, Settings::mx_rows(), prefixes, names);
            refused.iter().map(ToString::to_string).collect()
        };
        let spin = "unknown setting \"MX_SPINUS\" ignored";
        assert_eq!(unused(false, &["MX_"]), [spin]);
        let both = ["unknown setting \"BMI_MX_FOO\" ignored", spin];
        assert_eq!(unused(false, &["MX_", "BMI_MX_"]), both);
        let ignored =
            |name| format!("{name} ignored: this process has more rights than its caller");
        let elevated = ["MX_LIBFABRIC", "MX_LOG"].map(ignored);
        let elevated = elevated.into_iter().chain([spin.to_owned()]);
        assert!(elevated.eq(unused(true, &["MX_"])));
    }

    #[test]
    fn every_default_lies_in_its_own_range_and_is_read_back() {
        for defaults in [Settings::default(), Settings::for_mx()] {
            for row in Settings::mx_rows() {
                let text = row.text(&defaults);
                let mut settings = Settings::default();
                row.apply(&mut settings, &text).unwrap();
                assert_eq!(row.text(&settings), text, "{}", row.name);
            }
        }
    }

    #[test]
    fn each_setting_stores_its_whole_range_and_nothing_else() {
        for row in Settings::mx_rows() {
            let texts = match row.kind {
                ValueKind::Number(min, max)
                | ValueKind::Bytes(min, max)
                | ValueKind::PortNumber(min, max) => {
                    vec![min.to_string(), max.to_string()]
                }
                ValueKind::OrZero(min, max) => [0, min, max].iter().map(u64::to_string).collect(),
                ValueKind::Switch => vec!["off".to_owned(), "on".to_owned()],
                ValueKind::Choice(words) => words.iter().map(ToString::to_string).collect(),
                ValueKind::Name => vec!["auto".to_owned(), "x".to_owned(), "y".repeat(NAME_MAX)],
                ValueKind::Path => vec!["none".to_owned(), "/x".to_owned(), "y".repeat(PATH_MAX)],
                ValueKind::Formed(..) => vec!["none".to_owned(), "loss=0.5;seed=3".to_owned()],
            };
            for (place, text) in texts.iter().enumerate() {
                let (mut settings, refused) = load(&[(row.name, text)]);
                assert!(refused.is_empty(), "{refused:?}");
                let number = match row.kind {
                    ValueKind::Number(..)
                    | ValueKind::OrZero(..)
                    | ValueKind::Bytes(..)
                    | ValueKind::PortNumber(..) => text.parse().unwrap(),
                    _ => place as u64,
                };
                match (row.get)(&settings) {
                    Value::Number(value) => assert_eq!(value, number, "{}", row.name),
                    Value::Text(_) => assert_eq!(row.text(&settings), *text),
                }
                let default = Settings::for_mx();
                row.apply(&mut settings, &row.text(&default)).unwrap();
                let (back, default) = (format!("{settings:?}"), format!("{default:?}"));
                assert_eq!(back, default, "{}", row.name);
            }
        }
    }

    #[test]
    fn values_just_outside_a_range_are_refused_and_named() {
        for row in Settings::mx_rows() {
            if let ValueKind::Number(min, max)
            | ValueKind::OrZero(min, max)
            | ValueKind::Bytes(min, max)
            | ValueKind::PortNumber(min, max) = row.kind
            {
                let outside = [max.checked_add(1), min.checked_sub(1)];
                for value in outside.into_iter().flatten() {
                    let (settings, refused) = load(&[(row.name, &value.to_string())]);
                    assert_eq!(refused.len(), 1, "{}={value}", row.name);
                    assert!(refused[0].starts_with(&format!("{}=\"{value}\" ", row.name)));
                    assert_eq!(row.text(&settings), row.text(&Settings::for_mx()));
                }
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Settings::mx_rows().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn only_what_its_programs_rely_on_differs_for_mx() {
        let mut mx = Settings::for_mx();
        assert_eq!(mx.endpoint.request_timeout, None);
        assert_eq!(mx.endpoint.peer_timeout, None);
        // A send of 32 KiB needs no other credits, even if all but one byte of another such send is taken up.
        let largest = mx_proto::flow::cost(mx.endpoint.eager_max as u32);
        assert!(u32::from(mx.endpoint.first_credits) >= 2 * largest);
        assert!(mx.endpoint.keep_tombstones > 0 && mx.endpoint.connect_again);
        let usual = mx_proto::Config::default();
        mx.endpoint.request_timeout = usual.request_timeout;
        mx.endpoint.peer_timeout = usual.peer_timeout;
        assert!(std::mem::take(&mut mx.waiting_counts));
        mx.endpoint.first_credits = usual.first_credits;
        mx.endpoint.eager_max = usual.eager_max;
        mx.endpoint.copies = usual.copies;
        assert!(std::mem::take(&mut mx.endpoint.ask_before_announcing));
        mx.endpoint.keep_tombstones = usual.keep_tombstones;
        mx.endpoint.connect_again = usual.connect_again;
        assert_eq!(format!("{mx:?}"), format!("{:?}", Settings::default()));
    }

    #[test]
    fn what_is_set_gets_into_the_options_of_an_endpoint() {
        let (settings, refused) = load(&[
            ("MX_PORT", "tcp"),
            ("MX_PORT_BASE", "2048"),
            ("MX_SPIN_US", "3"),
            ("MX_PROVIDER", "psm3"),
            ("MX_RDM_KEEPALIVE_MS", "5000"),
            ("MX_TCP_KEEPALIVE_MS", "3000"),
            ("MX_LOCAL_BYTES", "8M"),
            ("MX_LOCAL_IDLE_MS", "0"),
            ("MX_RDM_WAIT", "poll"),
            ("MX_DGRAM_BACKEND", "fabric"),
            ("MX_DGRAM_MTU", "1472"),
            ("MX_DGRAM_WINDOW", "64"),
            ("MX_DGRAM_GIVE_UP_MS", "2000"),
            ("MX_DGRAM_CHECKSUM", "always"),
            ("MX_DGRAM_SOCKET_BYTES", "1M"),
            ("MX_DGRAM_FAULTS", "loss=0.25,seed=3"),
            ("MX_MAX_REMOTES", "77"),
            ("MX_DISABLE_SHMEM", "1"),
            ("MX_ZOMBIE", "0"),
        ]);
        assert!(refused.is_empty(), "{refused:?}");
        let options = settings.open_options(EndpointChoice::Lowest);
        assert_eq!(options.endpoint, EndpointChoice::Lowest);
        assert_eq!((options.policy, options.board), (ROUTE_TCP, None));
        assert_eq!(options.ports.base(), 2048);
        assert!(!options.shared_memory && options.required == Route::AUTO);
        assert_eq!(options.rdm.provider.as_deref(), Some("psm3"));
        assert_eq!(options.rdm.keepalive, Duration::from_secs(5));
        assert_eq!(options.tcp_keepalive, Duration::from_secs(3));
        assert_eq!((options.local.bytes, options.local.idle), (8 << 20, None));
        assert_eq!(options.rdm.wait, Wait::Poll);
        let dgram = &options.dgram;
        assert_eq!(
            (dgram.backend, dgram.receive_buffer),
            (BackendChoice::Fabric, 1 << 20)
        );
        assert_eq!(dgram.faults, FaultPlan::parse("loss=0.25,seed=3"));
        assert_eq!(dgram.provider.as_deref(), Some("psm3"));
        let expected = ReliableConfig {
            datagram_max: 1472,
            window: 64,
            give_up: Duration::from_secs(2),
            keepalive: Duration::from_millis(500),
            always_sum: true,
            max_links: 77,
            supply: reserve::SUPPLY,
            ..ReliableConfig::default()
        };
        assert_eq!(dgram.reliable, expected);
        assert_eq!(settings.tuning().spin, Duration::from_micros(3));
        let usual = Settings::default().open_options(EndpointChoice::Any);
        let plain = OpenOptions::new(EndpointChoice::Any);
        assert_eq!(format!("{usual:?}"), format!("{plain:?}"));
        for (word, route) in [
            ("auto", Route::AUTO),
            ("local", ROUTE_LOCAL),
            ("rdm", ROUTE_RDM),
            ("dgram", ROUTE_DGRAM),
        ] {
            assert_eq!(load(&[("MX_PORT", word)]).0.port, route);
        }
    }

    #[test]
    fn a_secret_that_is_asked_for_is_never_done_without() {
        for (value, expected) in [("none", None), ("/s", Some("/s")), ("", Some(""))] {
            let (settings, _) = load(&[("MX_SECRET_FILE", value)]);
            let options = settings.open_options(EndpointChoice::Lowest);
            assert_eq!(options.secret_file, expected.map(PathBuf::from));
        }
    }

    #[test]
    fn the_peers_file_is_one_none_or_the_usual() {
        let of = |value: Option<&str>| {
            let environment = |name: &str| match name {
                "MX_PEERS" => value.map(str::to_owned),
                _ => Some("nonsense".to_owned()),
            };
            peers_file(environment)
        };
        assert_eq!(of(None), Some(PathBuf::from("/etc/mx_peers")));
        assert_eq!(of(Some("/srv/hosts")), Some(PathBuf::from("/srv/hosts")));
        assert_eq!(of(Some("none")), None);
        assert_eq!(of(Some("")), of(None));
        assert_eq!(load(&[("MX_PEERS", "none")]).0.peers, None);
        let says = "MX_PEERS=\"\" ignored: not one of none, a path";
        assert_eq!(load(&[("MX_PEERS", "")]).1, [says]);
    }
}
