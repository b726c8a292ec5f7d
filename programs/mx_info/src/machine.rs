//! The machine as MX sees it.
//!
//! ```text
//!   mx_sys::nic          boards, known peers
//!   crate::endpoints     open endpoints       --Machine::look-->   text, JSON
//!   libfabric's survey   providers
//! ```
//!
//! Owns: the text form.

use crate::endpoints::{Endpoint, HEADING, Which, nic_text};
use crate::fabrics;
use crate::text::{aligned, non_empty, or_none, printable, show};
use libfabric_sys::Library;
use mx_port_rdm::{hardware, survey};
use mx_proto::NicId;
use mx_sys::nic::{self, KnownPeer};
use mx_sys::{Settings, settings};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const ABOUT: &str = "\
Lists the boards of this machine with their addresses, the endpoints that are open on them,
libfabric's providers, and the hosts of the peers file. It shows its own network namespace only.";

#[derive(Default, clap::Args)]
#[command(about = ABOUT)]
pub(crate) struct Args {
    /// Only this board
    #[arg(short)]
    board: Option<u32>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn show(&self) -> Result<(), String> {
        let machine = Machine::look(self.board).ok_or("this machine has no such board")?;
        show(&if self.json {
            format!("{}\n", machine.json())
        } else {
            machine.text()
        });
        Ok(())
    }
}

/// Properties of the machine.
#[derive(Debug)]
struct Machine {
    host: String,
    /// Value of `MX_PORT`.
    port: String,
    port_base: u16,
    boards: Vec<Board>,
    endpoints: Vec<Endpoint>,
    fabric: Fabric,
    /// Kernel settings that should be changed.
    advice: Vec<Advice>,
    peers_file: Option<PathBuf>,
    peers: Vec<KnownPeer>,
}

/// A kernel setting that should be changed.
#[derive(Debug)]
struct Advice {
    name: &'static str,
    value: &'static str,
    text: &'static str,
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
    /// Version of libfabric.
    version: String,
    /// Name, verdict, reason.
    rows: Vec<[String; 3]>,
}

impl Machine {
    /// Collects the properties, of all boards or one. `None` if there is no such board.
    fn look(board: Option<u32>) -> Option<Self> {
        let (settings, _) = Settings::load(settings::environment);
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
            endpoints: Which {
                board,
                ..Which::default()
            }
            .find(),
            fabric: Fabric::look(),
            advice: Advice::look(Path::new("/proc/sys")),
            peers_file: settings.peers.filter(|file| file.exists()),
            peers: nic::known_peers(),
        })
    }

    /// Returns the text for people.
    fn text(&self) -> String {
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
        out += &or_none(aligned(&HEADING, &rows));
        out += "\nProviders\n";
        out += &self.fabric.text();
        out += "\nKernel settings to change\n";
        let rows: Vec<_> = self.advice.iter().map(Advice::row).collect();
        out += &or_none(aligned(&["setting", "value", "advice"], &rows));
        out += "\nPeers known";
        if let Some(file) = &self.peers_file {
            let _ = write!(out, " ({})", printable(&file.to_string_lossy()));
        }
        out.push('\n');
        let rows: Vec<_> = self.peers.iter().map(peer_row).collect();
        out += &or_none(aligned(&["address", "NIC id", "names"], &rows));
        out
    }

    /// Returns the JSON for programs.
    fn json(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": self.host,
            "port": self.port,
            "port_base": self.port_base,
            "boards": self.boards.iter().map(Board::json).collect::<Value>(),
            "endpoints": self.endpoints.iter().map(Endpoint::json).collect::<Value>(),
            "fabric": self.fabric.json(),
            "advice": self.advice.iter().map(Advice::json).collect::<Value>(),
            "peers_file": self.peers_file.as_ref().map(|file| file.to_string_lossy()),
            "peers": self.peers.iter().map(peer_json).collect::<Value>(),
        })
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

    fn json(&self) -> Value {
        json!({
            "board": self.number,
            "interface": self.interface,
            "address": self.address,
            "nic_id": nic_text(self.nic),
            "name": non_empty(&self.name),
        })
    }
}

impl Advice {
    /// Returns the settings below `root` (/proc/sys) that should be changed. A setting that this kernel does not have
    /// needs no advice.
    fn look(root: &Path) -> Vec<Self> {
        let probing = std::fs::read_to_string(root.join("net/ipv4/tcp_mtu_probing"));
        let is_off = probing.is_ok_and(|value| value.trim() == "0");
        let advice = is_off.then_some(Self {
            name: "net.ipv4.tcp_mtu_probing",
            value: "0",
            text: "set 1: otherwise tcp never recovers when a path narrows silently",
        });
        advice.into_iter().collect()
    }

    fn row(&self) -> Vec<String> {
        [self.name, self.value, self.text].map(str::to_owned).into()
    }

    fn json(&self) -> Value {
        json!({"setting": self.name, "value": self.value, "advice": self.text})
    }
}

impl Fabric {
    fn look() -> Self {
        let providers = Library::get().map(|library| Providers {
            version: fabrics::version(library),
            rows: survey(library)
                .iter()
                .map(|finding| {
                    let (verdict, why) = fabrics::verdict(finding);
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
            Ok(it) => format!("  libfabric {}", it.version),
            Err(why) => format!("  no libfabric: {why}"),
        };
        let adapters = fabrics::adapters(&self.adapters, "none, so used only with MX_PORT=rdm");
        let _ = writeln!(out, "; {adapters}");
        if let Ok(providers) = &self.providers {
            let rows: Vec<_> = providers.rows.iter().map(|row| row.to_vec()).collect();
            out += &or_none(aligned(&["provider", "verdict", "why"], &rows));
        }
        out
    }

    fn json(&self) -> Value {
        let (version, rows, error) = match &self.providers {
            Ok(it) => (Some(&it.version), it.rows.as_slice(), None),
            Err(why) => (None, &[][..], Some(why)),
        };
        let rows = rows.iter().map(|[provider, verdict, why]| {
            json!({"provider": provider, "verdict": verdict, "why": non_empty(why)})
        });
        json!({
            "libfabric": version,
            "error": error,
            "adapters": self.adapters,
            "providers": rows.collect::<Value>(),
        })
    }
}

fn peer_row(peer: &KnownPeer) -> Vec<String> {
    let names = printable(&peer.names.join(" "));
    vec![peer.address.to_string(), nic_text(peer.nic), names]
}

fn peer_json(peer: &KnownPeer) -> Value {
    json!({
        "address": peer.address.to_string(),
        "nic_id": nic_text(peer.nic),
        "names": peer.names,
        "local": peer.is_local,
    })
}

/// Returns a setting in the form of its environment variable.
fn setting(settings: &Settings, name: &str) -> String {
    let row = Settings::mx_rows().find(|row| row.name == name);
    row.map(|row| row.text(settings)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_probe_paths_gets_advice() {
        let root = std::env::temp_dir().join(format!("mx_info-{}", std::process::id()));
        let file = root.join("net/ipv4/tcp_mtu_probing");
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        let with = |value: &str| {
            std::fs::write(&file, value).expect("a file");
            Advice::look(&root)
        };
        let advice: Vec<_> = with("0\n").iter().map(Advice::row).collect();
        assert_eq!(advice[0][..2], ["net.ipv4.tcp_mtu_probing", "0"]);
        assert_eq!((with("1\n").len(), with("2\n").len()), (0, 0));
        std::fs::remove_dir_all(&root).expect("it goes");
        assert_eq!(Advice::look(&root).len(), 0, "no such setting");
    }
}
