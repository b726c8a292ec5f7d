//! The method's settings: the common ones and its own, in one table.
//!
//! ```text
//!   environment  MX_SPIN_US=100 --+
//!                                 +--> mx_sys::settings --> Config   and one warning for every
//!   initialize   "MX_SPIN_US=100"-+    rows below                    rejected value
//!   options (take precedence)
//! ```
//!
//! `docs/tuning.md` shows the same table; a test compares them.
//!
//! Owns: names, defaults and ranges of the method's own settings.

use crate::error::Error;
use mx_proto::flow::{CREDIT, cost};
use mx_sys::Settings;
use mx_sys::settings;
use mx_sys::tunable::{self, G, K, M, Refused, Tunable, ValueKind};
use mx_sys::tunables;
use std::time::Duration;

/// All settings of the method.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings shared with libmyriexpress.
    pub mx: Settings,
    /// Time after which an unmatched expected send is cancelled; `None`: not while the peer lives.
    pub send_timeout: Option<Duration>,
    /// Time after which an unexpected send is cancelled that its receiver has no room for; `None`: not while the peer
    /// lives.
    pub unexpected_timeout: Option<Duration>,
    /// Time after which an unmatched receive is cancelled; `None`: not while the peer lives.
    pub recv_timeout: Option<Duration>,
    /// Maximum time that `finalize` waits for the last messages to leave.
    pub shutdown: Duration,
    /// Time that operations wait for a connection before they fail; `None`: no limit.
    pub connect_timeout: Option<Duration>,
    /// Maximum bytes of freed `memalloc` buffers kept for reuse.
    pub buffer_cache: usize,
}

/// Setting that limits a process's memory for messages without a receive.
const UNEXPECTED_BYTES: &str = "MX_UNEXPECTED_BYTES";

/// Milliseconds of a day: the longest useful time-out.
const DAY: u64 = 86_400_000;

/// Tunables that only the BMI method has, in the order of the documentation.
pub static OWN: &[Tunable<Config>] = &tunables! {
    "BMI_MX_CONNECT_TIMEOUT_MS", ValueKind::Number(0, DAY), (connect_timeout),
        "milliseconds that operations wait for a connection before they fail; 0: for ever";
    "BMI_MX_PEER_TIMEOUT_MS", ValueKind::OrZero(100, DAY), (mx.endpoint.peer_timeout),
        "milliseconds after which a peer that is silent although there are operations with it is lost, and \
        they fail; 0: never";
    "BMI_MX_SEND_TIMEOUT_MS", ValueKind::Number(0, DAY), (send_timeout),
        "milliseconds after which an unmatched expected send is cancelled; 0: not while the peer \
         lives";
    "BMI_MX_UNEXPECTED_TIMEOUT_MS", ValueKind::Number(0, DAY), (unexpected_timeout),
        "milliseconds after which an unexpected send is cancelled that its receiver has no room \
         for; 0: not while the peer lives";
    "BMI_MX_RECV_TIMEOUT_MS", ValueKind::Number(0, DAY), (recv_timeout),
        "milliseconds after which an unmatched receive is cancelled; 0: not while the peer lives";
    "BMI_MX_UNEXPECTED_MAX", ValueKind::Bytes(16 * K, G), (mx.endpoint.fetched_max),
        "largest unexpected message that can be posted and is accepted";
    "BMI_MX_SHUTDOWN_MS", ValueKind::Number(0, 60_000), (shutdown),
        "milliseconds that `finalize` waits at most for the last messages to leave";
    "BMI_MX_BUFFER_CACHE", ValueKind::Bytes(0, 64 * G), (buffer_cache),
        "bytes of freed `memalloc` buffers that are kept for reuse, for 5 s";
};

/// Variables of the log: read by `logging`, but documented with the settings.
pub const LOG_VARIABLES: [&str; 2] = ["BMI_MX_LOG", "MX_LOG"];

/// Returns all tunables of the method, those shared with libmyriexpress first, in the order of the documentation.
pub fn tunables() -> impl Iterator<Item = &'static Tunable<Config>> + Clone {
    settings::rows().iter().chain(OWN)
}

impl Default for Config {
    fn default() -> Self {
        let mut mx = Settings::default();
        // Twice the largest request or response of OrangeFS 2.10 (LISTATTR, 2 066 424 bytes).
        mx.endpoint.fetched_max = 4 * M as u32;
        Self {
            mx,
            shutdown: Duration::from_secs(1),
            connect_timeout: Some(Duration::from_secs(20)),
            send_timeout: None,
            unexpected_timeout: None,
            recv_timeout: None,
            // Sixteen buffers of 4 MiB, which is what the C method reserved in every process.
            buffer_cache: 64 * M as usize,
        }
    }
}

impl Config {
    /// Checks for values with which `initialize` has to fail: memory for less than the largest unexpected message, or
    /// an invalid value for that memory among the `refused`. Other invalid values are only logged.
    pub fn check(&self, refused: &[Refused]) -> Result<(), Box<Error>> {
        let endpoint = &self.mx.endpoint;
        let (memory, largest) = (endpoint.unexpected_bytes, endpoint.fetched_max);
        // At least an eighth of the memory is always lent.
        let least = (cost(largest) as usize * CREDIT).div_ceil(7) * 8;
        let least = least.max(M as usize);
        let (limits, others): (Vec<_>, Vec<_>) = refused
            .iter()
            .partition(|refused| refused.name == UNEXPECTED_BYTES);
        for refused in others {
            log::warn!("{refused}");
        }
        let value = match limits.first() {
            Some(refused) => refused.value.clone(),
            None if memory < least => memory.to_string(),
            None => return Ok(()),
        };
        Err(Error::invalid(format!(
            "{UNEXPECTED_BYTES}={value} is invalid: it has to be {}K to 64G while \
             BMI_MX_UNEXPECTED_MAX is \
             {largest}",
            least.div_ceil(K as usize)
        )))
    }
}

impl AsRef<Settings> for Config {
    fn as_ref(&self) -> &Settings {
        &self.mx
    }
}

impl AsMut<Settings> for Config {
    fn as_mut(&mut self) -> &mut Settings {
        &mut self.mx
    }
}

impl Config {
    /// Loads the settings of this process: environment first, then the `options` of `initialize` (`NAME=value`,
    /// separated by commas or blanks). Returns rejected values and unknown variables, too.
    pub fn load(options: Option<&str>) -> (Self, Vec<Refused>) {
        let (config, mut refused) = Self::from(settings::environment, options);
        let names = settings::variables();
        refused.extend(settings::unused(tunables(), &["MX_", "BMI_MX_"], names));
        (config, refused)
    }

    /// Reads the settings from `environment` and then from `options`. Returns them and the rejected values; unlike
    /// [`load`](Self::load), it does not report unknown variables.
    pub fn from(
        environment: impl Fn(&str) -> Option<String>,
        options: Option<&str>,
    ) -> (Self, Vec<Refused>) {
        let mut config = Self::default();
        let options = options.unwrap_or_default();
        let refused = tunable::load(tunables(), &mut config, environment, options);
        config.mx.keep_secret(&refused);
        (config, refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::Route;
    use mx_sys::ports::ROUTE_WORDS;
    use mx_sys::tunable::{NAME_MAX, PATH_MAX, Value};
    use mx_sys::{ROUTE_RDM, ROUTE_TCP};
    use std::collections::HashMap;

    fn load_all(pairs: &[(&str, &str)]) -> (Config, Vec<Refused>) {
        let value = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1);
        Config::from(|name| value(name).map(str::to_owned), None)
    }

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
        for tunable in tunables() {
            let text = tunable.text(&Config::default());
            let mut config = Config::default();
            tunable.apply(&mut config, &text).unwrap();
            assert_eq!(tunable.text(&config), text, "{}", tunable.name);
        }
    }

    #[test]
    fn every_tunable_sets_what_it_reads_at_both_ends_of_its_range() {
        for tunable in tunables() {
            let texts = match tunable.kind {
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
                let mut config = Config::default();
                tunable.apply(&mut config, text).unwrap();
                let number = match tunable.kind {
                    ValueKind::Number(..)
                    | ValueKind::OrZero(..)
                    | ValueKind::Bytes(..)
                    | ValueKind::PortNumber(..) => text.parse().unwrap(),
                    _ => place as u64,
                };
                match (tunable.get)(&config) {
                    Value::Number(value) => assert_eq!(value, number, "{}", tunable.name),
                    Value::Text(_) => assert_eq!(tunable.text(&config), *text, "{}", tunable.name),
                }
            }
        }
    }

    #[test]
    fn values_just_outside_a_range_are_refused_and_named() {
        for tunable in tunables() {
            if let ValueKind::Number(min, max)
            | ValueKind::OrZero(min, max)
            | ValueKind::Bytes(min, max)
            | ValueKind::PortNumber(min, max) = tunable.kind
            {
                let outside = [max.checked_add(1), min.checked_sub(1)];
                for value in outside.into_iter().flatten() {
                    let mut config = Config::default();
                    let before = tunable.text(&config);
                    let refused = tunable.apply(&mut config, &value.to_string()).unwrap_err();
                    assert!(refused.to_string().contains(tunable.name));
                    assert!(refused.to_string().contains(&value.to_string()));
                    assert_eq!(tunable.text(&config), before);
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
        assert_eq!(config.mx.port, ROUTE_TCP);
        assert_eq!(config.mx.spin, Duration::from_micros(7));
        assert_eq!(config.mx.endpoint.eager_max, 4096);
        assert!(!config.mx.helper);
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
        assert_eq!(config.mx.port, Route::AUTO);
        assert_eq!(config.mx.spin, Config::default().mx.spin);
        let ports = ROUTE_WORDS.join(", ");
        assert_eq!(
            refused,
            [
                &*format!("MX_PORT=\"udp\" ignored: not one of {ports}"),
                "MX_SPIN_US=\"-1\" ignored: not one of 0 to 1000000",
                "MX_UNEXPECTED_BYTES=\"99999999999G\" ignored: not one of 1M to 64G",
                "unknown setting \"nonsense\" ignored",
                "MX_HELPER=\"maybe\" ignored: not one of on, off",
            ]
        );
    }

    #[test]
    fn a_provider_is_a_name_and_its_semicolon_separates_nothing() {
        let provider = |options| load(&[], Some(options)).0.mx.provider;
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
                assert_eq!(config.mx.spin, Duration::from_micros(3), "{options}");
            }
        }
        assert_eq!(provider("MX_PROVIDER=verbs;ofi_rxm,MX_PROVIDER=auto"), None);
        let (config, refused) = load(
            &[("MX_PROVIDER", " psm3 "), ("MX_RDM_WAIT", "never")],
            Some("MX_PORT=rdm;MX_RDM_KEEPALIVE_MS=5000"),
        );
        assert_eq!(config.mx.provider.as_deref(), Some("psm3"));
        assert_eq!(config.mx.port, ROUTE_RDM);
        assert_eq!(config.mx.rdm.keepalive, Duration::from_secs(5));
        assert_eq!(
            refused,
            ["MX_RDM_WAIT=\"never\" ignored: not one of sleep, poll"]
        );
        let long = "x".repeat(NAME_MAX + 1);
        for bad in ["tcp ofi", "t\u{e9}", "a\nb", &long] {
            let (config, refused) = load(&[("MX_PROVIDER", bad)], None);
            assert_eq!(config.mx.provider, None);
            let text = format!("MX_PROVIDER={bad:?} ignored: not one of auto, a name");
            assert_eq!(refused, [text]);
        }
        assert_eq!(load(&[("MX_PROVIDER", "")], None).0.mx.provider, None);
    }

    #[test]
    fn settings_of_mx_programs_do_not_affect_the_method() {
        let (config, refused) = load(
            &[("MX_DISABLE_SHMEM", "1"), ("MX_ZOMBIE", "0")],
            Some("MX_PEERS=/srv/peers;of;all"),
        );
        assert!(refused.is_empty(), "{refused:?}");
        assert!(!config.mx.disable_shmem);
        let peers = std::path::Path::new("/srv/peers;of;all");
        assert_eq!(config.mx.peers.as_deref(), Some(peers));
        let (config, refused) = load(&[], Some("MX_DISABLE_SHMEM=1"));
        assert!(!config.mx.disable_shmem);
        assert_eq!(refused, ["unknown setting \"MX_DISABLE_SHMEM\" ignored"]);
    }

    #[test]
    fn a_secret_is_not_done_without_because_its_path_was_refused() {
        let file = |environment: &[(&str, &str)], options| {
            let secret = load(environment, options).0.mx.secret_file;
            secret.map(|path| path.into_os_string().into_string().unwrap())
        };
        assert_eq!(file(&[], None), None);
        assert_eq!(file(&[("MX_SECRET_FILE", "none")], None), None);
        assert_eq!(file(&[], Some("MX_SECRET_FILE=/s")).unwrap(), "/s");
        assert_eq!(file(&[("MX_SECRET_FILE", "")], None).unwrap(), "");
        assert_eq!(file(&[], Some("MX_SECRET_FILE=")).unwrap(), "");
        let both = file(&[("MX_SECRET_FILE", "")], Some("MX_SECRET_FILE=none"));
        assert_eq!(both.unwrap(), "");
    }

    #[test]
    fn impossible_limits_are_rejected_naming_the_variables() {
        let refused = |pairs: &[(&str, &str)]| {
            let (config, refused) = load_all(pairs);
            config.check(&refused).map_err(|error| error.to_string())
        };
        assert_eq!(refused(&[]), Ok(()));
        assert_eq!(refused(&[("MX_SPIN_US", "-1")]), Ok(()));
        for (pairs, why) in [
            (
                &[("MX_UNEXPECTED_BYTES", "1K")][..],
                "MX_UNEXPECTED_BYTES=1K is invalid: it has to be 4682K to 64G while BMI_MX_UNEXPECTED_MAX is \
                 4194304",
            ),
            (
                &[("MX_UNEXPECTED_BYTES", "4M")],
                "MX_UNEXPECTED_BYTES=4194304 is invalid: it has to be 4682K to 64G while \
                 BMI_MX_UNEXPECTED_MAX is 4194304",
            ),
            (
                &[
                    ("MX_UNEXPECTED_BYTES", "64K"),
                    ("BMI_MX_UNEXPECTED_MAX", "16K"),
                ],
                "MX_UNEXPECTED_BYTES=64K is invalid: it has to be 1024K to 64G while \
                 BMI_MX_UNEXPECTED_MAX is 16384",
            ),
        ] {
            assert_eq!(refused(pairs), Err(why.to_owned()));
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = tunables().map(|tunable| tunable.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), tunables().count());
    }
}
