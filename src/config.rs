//! Every knob: its environment name, default, range and reason, in one table.
//!
//! ```text
//!   environment  MX_SPIN_US=100 --+
//!                                 +--> table --> Config   and one warning for every
//!   initialize   "MX_SPIN_US=100"-+    below              value that was refused
//!   options (they win)
//! ```
//!
//! Sizes take the suffixes K, M and G (powers of 1024), switches `on` and `off`. A value that is
//! refused leaves the default in place. `docs/tuning.md` shows the same table; a test compares
//! them.
//!
//! Owns: names, defaults, ranges.
//! Knows nothing of: what a knob turns.

use mx_sys::ports::rdm::Wait;
use std::fmt;
use std::time::Duration;

/// All settings of the method.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which ports may carry traffic.
    pub port: PortChoice,
    /// First TCP port of the block for endpoints below 1024.
    pub port_base: u16,
    /// How the protocol endpoint behaves.
    pub endpoint: mx_proto::Config,
    /// How long a blocked test call polls before it sleeps in the kernel.
    pub spin: Duration,
    /// Whether a helper thread keeps connections moving while the application computes.
    pub helper: bool,
    /// Largest unexpected message that may be posted and is accepted.
    pub unexpected_max: usize,
    /// Bytes of unexpected messages waiting to be picked up with `testunexpected`.
    pub unexpected_queue_bytes: usize,
    /// How long operations may wait for a connection before they fail.
    pub connect_timeout: Option<Duration>,
    /// Bytes of freed `memalloc` buffers that are kept for reuse.
    pub buffer_cache: usize,
    /// The only libfabric provider that will do.
    pub provider: Option<String>,
    /// How long a peer may be silent over a fabric.
    pub rdm_keepalive: Duration,
    /// How threads that wait for a fabric do so.
    pub rdm_wait: Wait,
    /// Peers at a time that get a lane of their own over a fabric without RDMA.
    pub rdm_lanes: usize,
}

/// The answer to "which port?" for the whole process; an address may say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortChoice {
    /// Shared memory on this host; to others libfabric where there is an adapter for it, else TCP.
    Auto,
    /// Shared memory only.
    Local,
    /// TCP only.
    Tcp,
    /// libfabric, also on this host; TCP to peers that cannot be reached over it.
    Rdm,
}

/// One row of the table.
pub struct Tunable {
    /// The environment variable, and the option's name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it does, in one sentence without a full stop.
    pub about: &'static str,
    access: Access,
}

/// How a tunable gets in and out.
enum Access {
    /// As a number; words stand for their places.
    Number {
        set: fn(&mut Config, u64),
        get: fn(&Config) -> u64,
    },
    /// As a name, or none.
    Name {
        set: fn(&mut Config, Option<String>),
        get: fn(&Config) -> Option<&str>,
    },
}

/// What values a tunable takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// A number of bytes from the first to the second.
    Bytes(u64, u64),
    /// `off` or `on`.
    Switch,
    /// One of these words; the number is its place.
    Choice(&'static [&'static str]),
    /// A name, or `auto` for none.
    Name,
}

/// What stands for no name.
const NO_NAME: &str = "auto";

/// Longest name: longer than any provider's.
const NAME_MAX: usize = 64;

/// A value as it is set.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Number(u64),
    Name(Option<String>),
}

const K: u64 = 1024;
const M: u64 = 1024 * K;
const G: u64 = 1024 * M;

/// All tunables, in the order of the documentation.
pub static TUNABLES: &[Tunable] = &[
    Tunable {
        name: "MX_PORT",
        kind: Kind::Choice(&["auto", "local", "tcp", "rdm"]),
        about: "which ports carry traffic; `/local`, `/tcp` or `/rdm` at the end of an address wins",
        access: Access::Number {
            set: |c, v| {
                c.port = match v {
                    1 => PortChoice::Local,
                    2 => PortChoice::Tcp,
                    3 => PortChoice::Rdm,
                    _ => PortChoice::Auto,
                }
            },
            get: |c| match c.port {
                PortChoice::Auto => 0,
                PortChoice::Local => 1,
                PortChoice::Tcp => 2,
                PortChoice::Rdm => 3,
            },
        },
    },
    Tunable {
        name: "MX_PORT_BASE",
        kind: Kind::Number(1024, 64512),
        about: "TCP port of endpoint 0; endpoints below 1024 use the block from here on, and all \
                hosts must agree on it",
        access: Access::Number {
            // The range keeps it within 16 bits.
            set: |c, v| c.port_base = v as u16,
            get: |c| c.port_base.into(),
        },
    },
    Tunable {
        name: "MX_SPIN_US",
        kind: Kind::Number(0, 1_000_000),
        about: "microseconds a blocked test call polls before it sleeps in the kernel",
        access: Access::Number {
            set: |c, v| c.spin = Duration::from_micros(v),
            get: |c| c.spin.as_micros() as u64,
        },
    },
    Tunable {
        name: "MX_HELPER",
        kind: Kind::Switch,
        about: "a helper thread, asleep in the kernel, keeps connections moving while the \
                application computes",
        access: Access::Number {
            set: |c, v| c.helper = v == 1,
            get: |c| c.helper.into(),
        },
    },
    Tunable {
        name: "MX_EAGER_MAX",
        kind: Kind::Bytes(128, 32 * K),
        about: "messages up to this size travel at once; larger ones are offered and pulled",
        access: Access::Number {
            set: |c, v| c.endpoint.eager_max = v as usize,
            get: |c| c.endpoint.eager_max as u64,
        },
    },
    Tunable {
        name: "MX_UNEXPECTED_BYTES",
        kind: Kind::Bytes(M, 64 * G),
        about: "bytes of early messages that all peers together may leave here",
        access: Access::Number {
            set: |c, v| c.endpoint.unexpected_bytes = v as usize,
            get: |c| c.endpoint.unexpected_bytes as u64,
        },
    },
    Tunable {
        name: "MX_WINDOW_BYTES",
        kind: Kind::Bytes(32 * K, G),
        about: "bytes of early messages that one busy peer may leave here",
        access: Access::Number {
            set: |c, v| c.endpoint.partner_window_bytes = v as u32,
            get: |c| c.endpoint.partner_window_bytes.into(),
        },
    },
    Tunable {
        name: "MX_WINDOW_MESSAGES",
        kind: Kind::Number(8, 65536),
        about: "early messages that one peer may leave here, whatever their size",
        access: Access::Number {
            set: |c, v| c.endpoint.partner_window_messages = v as u32,
            get: |c| c.endpoint.partner_window_messages.into(),
        },
    },
    Tunable {
        name: "MX_REQUEST_TIMEOUT_MS",
        kind: Kind::Number(0, 86_400_000),
        about: "milliseconds without any progress after which a transfer fails; 0: never",
        access: Access::Number {
            set: |c, v| c.endpoint.request_timeout = millis(v),
            get: |c| of_millis(c.endpoint.request_timeout),
        },
    },
    Tunable {
        name: "MX_POLL_BUDGET",
        kind: Kind::Number(1, 4096),
        about: "packets taken in by one progress call",
        access: Access::Number {
            set: |c, v| c.endpoint.poll_budget = v as usize,
            get: |c| c.endpoint.poll_budget as u64,
        },
    },
    Tunable {
        name: "MX_MAX_PARTNERS",
        kind: Kind::Number(1, 1 << 20),
        about: "connections at the same time; strangers beyond it are refused",
        access: Access::Number {
            set: |c, v| c.endpoint.max_partners = v as usize,
            get: |c| c.endpoint.max_partners as u64,
        },
    },
    Tunable {
        name: "MX_PROVIDER",
        kind: Kind::Name,
        about: "the libfabric provider of the rdm port, by its exact name; auto: the best there is",
        access: Access::Name {
            set: |c, v| c.provider = v,
            get: |c| c.provider.as_deref(),
        },
    },
    Tunable {
        name: "MX_RDM_KEEPALIVE_MS",
        kind: Kind::Number(1000, 86_400_000),
        about: "milliseconds after which a peer that is silent over a fabric is taken for dead",
        access: Access::Number {
            set: |c, v| c.rdm_keepalive = Duration::from_millis(v),
            get: |c| c.rdm_keepalive.as_millis() as u64,
        },
    },
    Tunable {
        name: "MX_RDM_WAIT",
        kind: Kind::Choice(&["sleep", "poll"]),
        about: "what a blocked test call does for a fabric: sleep in the kernel, or look every \
                millisecond or ten, which spares some providers work with every message",
        access: Access::Number {
            set: |c, v| c.rdm_wait = if v == 1 { Wait::Poll } else { Wait::Fd },
            get: |c| (c.rdm_wait == Wait::Poll).into(),
        },
    },
    Tunable {
        name: "MX_RDM_LANES",
        kind: Kind::Number(0, 4096),
        about: "peers at a time to which large messages go uncopied over a provider without RDMA",
        access: Access::Number {
            set: |c, v| c.rdm_lanes = v as usize,
            get: |c| c.rdm_lanes as u64,
        },
    },
    Tunable {
        name: "BMI_MX_CONNECT_TIMEOUT_MS",
        kind: Kind::Number(0, 86_400_000),
        about: "milliseconds that operations wait for a connection before they fail; 0: for ever",
        access: Access::Number {
            set: |c, v| c.connect_timeout = millis(v),
            get: |c| of_millis(c.connect_timeout),
        },
    },
    Tunable {
        name: "BMI_MX_UNEXPECTED_MAX",
        kind: Kind::Bytes(16 * K, G),
        about: "largest unexpected message that can be posted and is accepted",
        access: Access::Number {
            set: |c, v| c.unexpected_max = v as usize,
            get: |c| c.unexpected_max as u64,
        },
    },
    Tunable {
        name: "BMI_MX_UNEXPECTED_QUEUE_BYTES",
        kind: Kind::Bytes(M, 64 * G),
        about: "bytes of unexpected messages waiting for `testunexpected`; more stay at their \
                senders",
        access: Access::Number {
            set: |c, v| c.unexpected_queue_bytes = v as usize,
            get: |c| c.unexpected_queue_bytes as u64,
        },
    },
    Tunable {
        name: "BMI_MX_BUFFER_CACHE",
        kind: Kind::Bytes(0, 64 * G),
        about: "bytes of freed `memalloc` buffers that are kept for reuse",
        access: Access::Number {
            set: |c, v| c.buffer_cache = v as usize,
            get: |c| c.buffer_cache as u64,
        },
    },
];

/// What the log takes; read by `logging`, here because it is documented with the others.
pub const LOG_VARIABLES: [&str; 2] = ["BMI_MX_LOG", "MX_LOG"];

impl Default for Config {
    fn default() -> Self {
        Self {
            port: PortChoice::Auto,
            port_base: mx_sys::endpoint_port::DEFAULT_PORT_BASE,
            endpoint: mx_proto::Config::default(),
            // Twice what waking a sleeping thread costs on the reference machine (24 us).
            spin: Duration::from_micros(50),
            helper: true,
            // Twice the largest request or response of OrangeFS 2.10 (LISTATTR, 2 066 424 bytes).
            unexpected_max: 4 * M as usize,
            unexpected_queue_bytes: 64 * M as usize,
            connect_timeout: Some(Duration::from_secs(20)),
            // Sixteen buffers of 4 MiB, which is what the C method set aside in every process.
            buffer_cache: 64 * M as usize,
            provider: None,
            rdm_keepalive: Duration::from_secs(20),
            // As many peers as a busy process streams to at the same time; each costs descriptors.
            rdm_wait: Wait::Fd,
            rdm_lanes: 64,
        }
    }
}

impl Config {
    /// The settings of this process: environment first, then the `options` of `initialize`
    /// (`NAME=value`, separated by commas or blanks). Every value refused gives one warning.
    pub fn load(options: Option<&str>) -> (Self, Vec<Refused>) {
        Self::from(|name| std::env::var(name).ok(), options)
    }

    /// [`load`](Self::load) with another environment.
    pub fn from(
        environment: impl Fn(&str) -> Option<String>,
        options: Option<&str>,
    ) -> (Self, Vec<Refused>) {
        let mut config = Self::default();
        let mut refused = Vec::new();
        for tunable in TUNABLES {
            if let Some(value) = environment(tunable.name) {
                refused.extend(tunable.apply(&mut config, value.trim()).err());
            }
        }
        for option in split_options(options.unwrap_or_default()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match Tunable::named(name) {
                Some(tunable) => refused.extend(tunable.apply(&mut config, value).err()),
                None => refused.push(Refused {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    wanted: None,
                }),
            }
        }
        (config, refused)
    }
}

/// The entries of an option string. A semicolon separates them too, unless it is in the middle of
/// a provider's name, such as `tcp;ofi_rxm`.
fn split_options(options: &str) -> Vec<&str> {
    let mut entries = Vec::new();
    for chunk in options.split(|c: char| c == ',' || c.is_whitespace()) {
        let mut rest = chunk;
        while !rest.is_empty() {
            let name = rest.split_once('=').map_or("", |(name, _)| name);
            let is_name = matches!(Tunable::named(name), Some(t) if matches!(t.kind, Kind::Name));
            let end = match is_name {
                false => rest.find(';'),
                // The last one before the next `NAME=`.
                true => {
                    let value = name.len() + 1;
                    let next = rest[value..].find('=');
                    next.and_then(|next| rest[value..value + next].rfind(';'))
                        .map(|at| value + at)
                }
            };
            let (entry, after) = match end {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, ""),
            };
            entries.push(entry.trim_end_matches(';'));
            rest = after;
        }
    }
    entries.retain(|entry| !entry.is_empty());
    entries
}

impl Tunable {
    /// The default as people write it.
    pub fn default_text(&self) -> String {
        self.kind.text(&self.get(&Config::default()))
    }

    fn named(name: &str) -> Option<&'static Self> {
        TUNABLES.iter().find(|tunable| tunable.name == name)
    }

    fn get(&self, config: &Config) -> Value {
        match self.access {
            Access::Number { get, .. } => Value::Number(get(config)),
            Access::Name { get, .. } => Value::Name(get(config).map(str::to_owned)),
        }
    }

    fn apply(&self, config: &mut Config, text: &str) -> Result<(), Refused> {
        match (&self.access, self.kind.parse(text)) {
            (Access::Number { set, .. }, Some(Value::Number(value))) => set(config, value),
            (Access::Name { set, .. }, Some(Value::Name(name))) => set(config, name),
            _ => {
                return Err(Refused {
                    name: self.name.to_owned(),
                    value: text.to_owned(),
                    wanted: Some(self.kind),
                });
            }
        }
        Ok(())
    }
}

impl Kind {
    /// A value as people write it.
    fn text(self, value: &Value) -> String {
        match value {
            Value::Number(value) => self.number_text(*value),
            Value::Name(name) => name.as_deref().unwrap_or(NO_NAME).to_owned(),
        }
    }

    fn number_text(self, value: u64) -> String {
        match self {
            Self::Number(..) | Self::Name => value.to_string(),
            Self::Bytes(..) => match value {
                0 => "0".to_owned(),
                v if v % G == 0 => format!("{}G", v / G),
                v if v % M == 0 => format!("{}M", v / M),
                v if v % K == 0 => format!("{}K", v / K),
                v => v.to_string(),
            },
            Self::Switch => if value == 1 { "on" } else { "off" }.to_owned(),
            Self::Choice(words) => words
                .get(value as usize)
                .map_or_else(|| value.to_string(), |word| (*word).to_owned()),
        }
    }

    fn parse(self, text: &str) -> Option<Value> {
        let number = match self {
            Self::Number(min, max) => text.parse().ok().filter(|v| (min..=max).contains(v)),
            Self::Bytes(min, max) => {
                let (digits, unit) = match text.as_bytes().last()? {
                    b'K' | b'k' => (&text[..text.len() - 1], K),
                    b'M' | b'm' => (&text[..text.len() - 1], M),
                    b'G' | b'g' => (&text[..text.len() - 1], G),
                    _ => (text, 1),
                };
                let value = digits.parse::<u64>().ok()?.checked_mul(unit)?;
                (min..=max).contains(&value).then_some(value)
            }
            Self::Switch => match text {
                "on" | "1" | "yes" | "true" => Some(1),
                "off" | "0" | "no" | "false" => Some(0),
                _ => None,
            },
            Self::Choice(words) => words
                .iter()
                .position(|word| *word == text)
                .map(|place| place as u64),
            Self::Name => {
                let fits = text.len() <= NAME_MAX && text.bytes().all(|b| b.is_ascii_graphic());
                let name = Some(text).filter(|text| !matches!(*text, "" | NO_NAME));
                return fits.then(|| Value::Name(name.map(str::to_owned)));
            }
        };
        number.map(Value::Number)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Number(min, max) | Self::Bytes(min, max) => {
                write!(f, "{} to {}", self.number_text(min), self.number_text(max))
            }
            Self::Switch => f.write_str("on, off"),
            Self::Choice(words) => f.write_str(&words.join(", ")),
            Self::Name => write!(f, "{NO_NAME}, a name"),
        }
    }
}

/// A setting that was not taken.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// The text given.
    pub value: String,
    /// What would have been right; `None` for a name that does not exist.
    pub wanted: Option<Kind>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wanted {
            Some(kind) => write!(
                f,
                "{}={:?} ignored: not one of {kind}",
                self.name, self.value
            ),
            None => write!(f, "unknown option {:?} ignored", self.name),
        }
    }
}

fn millis(value: u64) -> Option<Duration> {
    (value > 0).then(|| Duration::from_millis(value))
}

fn of_millis(value: Option<Duration>) -> u64 {
    value.map_or(0, |value| value.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn load(pairs: &[(&str, &str)], options: Option<&str>) -> (Config, Vec<String>) {
        let map: HashMap<String, String> = pairs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let (config, refused) = Config::from(|name| map.get(name).cloned(), options);
        (config, refused.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_default_lies_in_its_own_range_and_is_read_back() {
        for tunable in TUNABLES {
            let text = tunable.default_text();
            let value = tunable.kind.parse(&text);
            assert_eq!(
                value,
                Some(tunable.get(&Config::default())),
                "{}",
                tunable.name
            );
        }
    }

    #[test]
    fn every_tunable_sets_what_it_reads_at_both_ends_of_its_range() {
        for tunable in TUNABLES {
            let numbers = match tunable.kind {
                Kind::Number(min, max) | Kind::Bytes(min, max) => vec![min, max],
                Kind::Switch => vec![0, 1],
                Kind::Choice(words) => (0..words.len() as u64).collect(),
                Kind::Name => vec![],
            };
            let names = match tunable.kind {
                Kind::Name => vec![None, Some("x".to_owned()), Some("y".repeat(NAME_MAX))],
                _ => vec![],
            };
            let numbers = numbers.into_iter().map(Value::Number);
            for value in numbers.chain(names.into_iter().map(Value::Name)) {
                let mut config = Config::default();
                let text = tunable.kind.text(&value);
                tunable.apply(&mut config, &text).unwrap();
                assert_eq!(tunable.get(&config), value, "{}={text}", tunable.name);
            }
        }
    }

    #[test]
    fn values_just_outside_a_range_are_refused_and_named() {
        for tunable in TUNABLES {
            if let Kind::Number(min, max) | Kind::Bytes(min, max) = tunable.kind {
                let outside = [max.checked_add(1), min.checked_sub(1)];
                for value in outside.into_iter().flatten() {
                    let before = tunable.get(&Config::default());
                    let mut config = Config::default();
                    let refused = tunable.apply(&mut config, &value.to_string()).unwrap_err();
                    assert!(refused.to_string().contains(tunable.name));
                    assert!(refused.to_string().contains(&value.to_string()));
                    assert_eq!(tunable.get(&config), before);
                }
            }
        }
    }

    #[test]
    fn options_win_over_the_environment() {
        let (config, refused) = load(
            &[
                ("MX_PORT", "local"),
                ("MX_SPIN_US", "7"),
                ("MX_EAGER_MAX", "4K"),
            ],
            Some("MX_PORT=tcp, MX_HELPER=off"),
        );
        assert_eq!(config.port, PortChoice::Tcp);
        assert_eq!(config.spin, Duration::from_micros(7));
        assert_eq!(config.endpoint.eager_max, 4096);
        assert!(!config.helper);
        assert!(refused.is_empty(), "{refused:?}");
    }

    #[test]
    fn what_cannot_be_used_is_named_and_changes_nothing() {
        let (config, refused) = load(
            &[
                ("MX_PORT", "udp"),
                ("MX_SPIN_US", "-1"),
                ("MX_UNEXPECTED_BYTES", "99999999999G"),
            ],
            Some("nonsense,MX_HELPER=maybe"),
        );
        assert_eq!(config.port, PortChoice::Auto);
        assert_eq!(config.spin, Config::default().spin);
        assert_eq!(
            refused,
            [
                "MX_PORT=\"udp\" ignored: not one of auto, local, tcp, rdm",
                "MX_SPIN_US=\"-1\" ignored: not one of 0 to 1000000",
                "MX_UNEXPECTED_BYTES=\"99999999999G\" ignored: not one of 1M to 64G",
                "unknown option \"nonsense\" ignored",
                "MX_HELPER=\"maybe\" ignored: not one of on, off",
            ]
        );
    }

    #[test]
    fn a_provider_is_a_name_and_its_semicolon_separates_nothing() {
        let provider = |options| load(&[], Some(options)).0.provider;
        for options in [
            "MX_PROVIDER=tcp;ofi_rxm",
            "MX_PROVIDER=tcp;ofi_rxm;",
            "MX_PROVIDER=tcp;ofi_rxm,MX_SPIN_US=3",
            "MX_PROVIDER=tcp;ofi_rxm;MX_SPIN_US=3",
            "MX_SPIN_US=3;MX_PROVIDER=tcp;ofi_rxm MX_HELPER=off",
        ] {
            assert_eq!(
                provider(options).as_deref(),
                Some("tcp;ofi_rxm"),
                "{options}"
            );
            let (config, refused) = load(&[], Some(options));
            assert!(refused.is_empty(), "{options}: {refused:?}");
            if options.contains("SPIN") {
                assert_eq!(config.spin, Duration::from_micros(3), "{options}");
            }
        }
        assert_eq!(provider("MX_PROVIDER=verbs;ofi_rxm,MX_PROVIDER=auto"), None);
        let (config, refused) = load(
            &[("MX_PROVIDER", " psm3 "), ("MX_RDM_LANES", "4097")],
            Some("MX_PORT=rdm;MX_RDM_KEEPALIVE_MS=5000"),
        );
        assert_eq!(config.provider.as_deref(), Some("psm3"));
        assert_eq!(config.port, PortChoice::Rdm);
        assert_eq!(config.rdm_keepalive, Duration::from_secs(5));
        assert_eq!(
            refused,
            ["MX_RDM_LANES=\"4097\" ignored: not one of 0 to 4096"]
        );
        let long = "x".repeat(NAME_MAX + 1);
        for bad in ["tcp ofi", "t\u{e9}", "a\nb", &long] {
            let (config, refused) = load(&[("MX_PROVIDER", bad)], None);
            assert_eq!(config.provider, None);
            let text = format!("MX_PROVIDER={bad:?} ignored: not one of auto, a name");
            assert_eq!(refused, [text]);
        }
        assert_eq!(load(&[("MX_PROVIDER", "")], None).0.provider, None);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TUNABLES.iter().map(|tunable| tunable.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TUNABLES.len());
    }
}
