//! This machine as MX sees it.
//!
//! ```text
//!   mx_sys::nic          boards, peers known
//!   crate::endpoints     endpoints in use       --Machine::look-->   text, JSON
//!   libfabric's survey   providers
//! ```
//!
//! Owns: the words for all of it.

use crate::endpoints::{self, Endpoint, nic_text};
use crate::json::Json;
use crate::text::{aligned, printable};
use libfabric_sys::Library;
use mx_port_rdm::{Verdict, hardware, survey};
use mx_proto::NicId;
use mx_sys::Settings;
use mx_sys::nic::{self, KnownPeer};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Everything `mx_info` shows.
#[derive(Debug)]
pub struct Machine {
    host: String,
    /// `MX_PORT`.
    port: String,
    port_base: u16,
    boards: Vec<Board>,
    endpoints: Vec<Endpoint>,
    fabric: Fabric,
    peers_file: Option<PathBuf>,
    peers: Vec<KnownPeer>,
}

/// A board of this machine.
#[derive(Debug)]
struct Board {
    number: u32,
    interface: String,
    address: String,
    nic: NicId,
    name: String,
}

/// libfabric's adapters and providers.
#[derive(Debug)]
struct Fabric {
    adapters: Vec<String>,
    providers: Result<Providers, String>,
}

#[derive(Debug)]
struct Providers {
    version: (u32, u32),
    /// Name, verdict, why.
    rows: Vec<[String; 3]>,
}

impl Machine {
    /// Looks at it: all boards, or one. `None` when there is no such board.
    pub fn look(board: Option<u32>) -> Option<Self> {
        let (settings, _) = Settings::load(|name| std::env::var(name).ok());
        let boards: Vec<Board> = nic::boards()
            .into_iter()
            .zip(0..)
            .map(|((nic, it), number)| Board {
                number,
                interface: printable(&it.name),
                address: it.address.to_string(),
                nic,
                name: nic::mx_name(nic).unwrap_or_default(),
            })
            .filter(|it| board.is_none_or(|wanted| wanted == it.number))
            .collect();
        if boards.is_empty() {
            return None;
        }
        Some(Self {
            host: nic::machine_name().to_owned(),
            port: setting(&settings, "MX_PORT"),
            port_base: settings.port_base,
            boards,
            endpoints: endpoints::find(|found| {
                board.is_none_or(|wanted| wanted == found.page.board)
            }),
            fabric: Fabric::look(),
            peers_file: settings.peers.filter(|file| file.exists()),
            peers: nic::known_peers(),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "MX {} on {}; MX_PORT={}, endpoint 0 is TCP port {}\n",
            env!("CARGO_PKG_VERSION"),
            self.host,
            self.port,
            self.port_base
        );
        out += "\nBoards\n";
        out += &aligned(
            &["board", "interface", "address", "NIC id", "name"],
            &self.boards.iter().map(Board::row).collect::<Vec<_>>(),
        );
        out += "\nOpen endpoints\n";
        let rows: Vec<_> = self.endpoints.iter().map(Endpoint::row).collect();
        out += &or_none(aligned(&endpoints::HEADING, &rows));
        out += "\nProviders\n";
        out += &self.fabric.text();
        out += "\nPeers known";
        if let Some(file) = &self.peers_file {
            let _ = write!(out, " ({})", printable(&file.to_string_lossy()));
        }
        out.push('\n');
        let rows: Vec<_> = self.peers.iter().map(peer_row).collect();
        out += &or_none(aligned(&["address", "NIC id", "names"], &rows));
        out
    }

    /// For programs.
    pub fn json(&self) -> Json {
        let file = self.peers_file.as_ref();
        Json::object([
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("host", self.host.as_str().into()),
            ("port", self.port.as_str().into()),
            ("port_base", u32::from(self.port_base).into()),
            (
                "boards",
                Json::List(self.boards.iter().map(Board::json).collect()),
            ),
            (
                "endpoints",
                Json::List(self.endpoints.iter().map(Endpoint::json).collect()),
            ),
            ("fabric", self.fabric.json()),
            (
                "peers_file",
                file.map_or(Json::Null, |file| file.to_string_lossy().as_ref().into()),
            ),
            (
                "peers",
                Json::List(self.peers.iter().map(peer_json).collect()),
            ),
        ])
    }
}

impl Board {
    fn row(&self) -> Vec<String> {
        vec![
            self.number.to_string(),
            self.interface.clone(),
            self.address.clone(),
            nic_text(self.nic),
            self.name.clone(),
        ]
    }

    fn json(&self) -> Json {
        Json::object([
            ("board", self.number.into()),
            ("interface", self.interface.as_str().into()),
            ("address", self.address.as_str().into()),
            ("nic_id", nic_text(self.nic).as_str().into()),
            ("name", Json::text_or_null(&self.name)),
        ])
    }
}

impl Fabric {
    fn look() -> Self {
        let providers = Library::get().map(|library| Providers {
            version: library.version(),
            rows: survey(library)
                .iter()
                .map(|finding| {
                    let (verdict, why) = match &finding.verdict {
                        Verdict::Chosen => ("chosen", ""),
                        Verdict::Usable => ("usable", ""),
                        Verdict::Refused(why) => ("refused", why.as_str()),
                    };
                    [&finding.provider, verdict, why].map(printable)
                })
                .collect(),
        });
        Self {
            adapters: hardware::adapters(),
            providers: providers.map_err(|error| error.to_string()),
        }
    }

    fn text(&self) -> String {
        let mut out = match &self.providers {
            Ok(it) => format!("  libfabric {}.{}", it.version.0, it.version.1),
            Err(why) => format!("  no libfabric: {why}"),
        };
        let adapters = if self.adapters.is_empty() {
            "none, so used only with MX_PORT=rdm".to_owned()
        } else {
            self.adapters.join(", ")
        };
        let _ = writeln!(out, "; fabric adapters: {adapters}");
        if let Ok(providers) = &self.providers {
            let rows: Vec<_> = providers.rows.iter().map(|row| row.to_vec()).collect();
            out += &or_none(aligned(&["provider", "verdict", "why"], &rows));
        }
        out
    }

    fn json(&self) -> Json {
        let adapters = self.adapters.iter().map(|it| it.as_str().into()).collect();
        let (version, rows, error) = match &self.providers {
            Ok(it) => {
                let version = format!("{}.{}", it.version.0, it.version.1);
                (version, it.rows.as_slice(), "")
            }
            Err(why) => (String::new(), &[][..], why.as_str()),
        };
        let rows = rows.iter().map(|[provider, verdict, why]| {
            Json::object([
                ("provider", provider.as_str().into()),
                ("verdict", verdict.as_str().into()),
                ("why", Json::text_or_null(why)),
            ])
        });
        Json::object([
            ("libfabric", Json::text_or_null(&version)),
            ("error", Json::text_or_null(error)),
            ("adapters", Json::List(adapters)),
            ("providers", Json::List(rows.collect())),
        ])
    }
}

fn peer_row(peer: &KnownPeer) -> Vec<String> {
    let names = printable(&peer.names.join(" "));
    vec![peer.address.to_string(), nic_text(peer.nic), names]
}

fn peer_json(peer: &KnownPeer) -> Json {
    let names = peer.names.iter().map(|name| name.as_str().into()).collect();
    Json::object([
        ("address", peer.address.to_string().as_str().into()),
        ("nic_id", nic_text(peer.nic).as_str().into()),
        ("names", Json::List(names)),
        ("local", Json::Bool(peer.is_local)),
    ])
}

/// A setting as its environment variable would say it.
fn setting(settings: &Settings, name: &str) -> String {
    let row = Settings::mx_rows().find(|row| row.name == name);
    row.map(|row| row.text(settings)).unwrap_or_default()
}

fn or_none(table: String) -> String {
    if table.is_empty() {
        "  none\n".to_owned()
    } else {
        table
    }
}
