//! An open endpoint, as text.
//!
//! ```text
//!   published::Found  +  /proc/PID/comm, the TCP port  -->  Endpoint  -->  table row, block, JSON
//! ```
//!
//! Owns: the text form of a published page.

use crate::text::{non_empty, printable, show};
use clap::Parser;
use mx_proto::NicId;
use mx_sys::published::{self, Found, Peer};
use mx_sys::{PortMap, Settings, nic, settings};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ABOUT: &str = "\
Shows the open endpoints of this machine: their processes, the ports that reach them, and what is
posted on them. Only root sees endpoints of other users. Endpoints of another network namespace are
shown there only.";

#[derive(Parser)]
#[command(about = ABOUT, after_help = "Exits with 1 if there is none.")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Print a JSON list
    #[arg(long)]
    json: bool,
}

/// Selection of endpoints.
#[derive(Default, clap::Args)]
pub(crate) struct Which {
    /// Only endpoints of this board
    #[arg(short)]
    pub(crate) board: Option<u32>,
    /// Only endpoints with this number
    #[arg(short)]
    pub(crate) endpoint: Option<u32>,
    /// Only endpoints of this process
    #[arg(short)]
    pub(crate) pid: Option<u32>,
}

impl Args {
    pub(crate) fn show(&self) -> Result<(), String> {
        let found = self.which.find();
        if self.json {
            let list: Value = found.iter().map(Endpoint::json).collect();
            show(&format!("{list}\n"));
        } else {
            let blocks: Vec<String> = found.iter().map(Endpoint::block).collect();
            show(&blocks.join("\n"));
        }
        if found.is_empty() {
            return Err(NONE.into());
        }
        Ok(())
    }
}

impl Which {
    /// Finds the selected endpoints of this machine whose processes may be inspected.
    pub(crate) fn find(&self) -> Vec<Endpoint> {
        let matches = |wanted: Option<u32>, is| wanted.is_none_or(|wanted| wanted == is);
        let map = port_map();
        let wanted = |Found { pid, page, .. }: &Found| {
            matches(self.board, page.board)
                && matches(self.endpoint, page.endpoint.0)
                && matches(self.pid, *pid)
        };
        let found = published::find().into_iter().filter(wanted);
        found.map(|found| Endpoint::new(found, map)).collect()
    }
}

/// Error text when there is nothing to show.
pub(crate) const NONE: &str = "no such endpoint is open";

/// Heading of [`Endpoint::row`].
pub(crate) const HEADING: [&str; 7] = [
    "board", "endpoint", "pid", "program", "library", "ports", "provider",
];

/// Counters that are levels.
const STATE: [&str; 5] = [
    "remotes",
    "links",
    "requests",
    "posted_receives",
    "unexpected_bytes",
];

/// An open endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Id of the owning process.
    pub(crate) pid: u32,
    /// Name of the process's program; empty after the process has ended.
    pub(crate) program: String,
    /// Library of the endpoint: `bmi_mx`, `myriexpress` or `na_plugin_mx`.
    pub(crate) library: String,
    /// Number of its board.
    pub(crate) board: u32,
    /// Endpoint number.
    pub(crate) endpoint: u32,
    /// NIC id.
    pub(crate) nic: NicId,
    /// Number of this opening of the endpoint.
    pub(crate) session: u64,
    /// Names of the open ports.
    pub(crate) ports: Vec<&'static str>,
    /// TCP port that peers connect to; `None` without one.
    pub(crate) tcp_port: Option<u16>,
    /// Provider of libfabric; empty without one.
    pub(crate) provider: String,
    /// Time since it was opened.
    pub(crate) age: Duration,
    /// Time of opening, in seconds since 1970.
    pub(crate) opened: u64,
    /// Counters: label and value.
    pub(crate) counters: Vec<(String, u64)>,
    pub(crate) peers: Vec<Peer>,
}

fn port_map() -> PortMap {
    let (settings, _) = Settings::load(settings::environment);
    PortMap::new(settings.port_base).unwrap_or_default()
}

impl Endpoint {
    fn new(found: Found, map: PortMap) -> Self {
        let Found { pid, page, peers } = found;
        let since = |t: SystemTime| t.elapsed().unwrap_or_default();
        let unix = page.opened.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            pid,
            program: printable(&program(pid)),
            library: printable(&page.library),
            board: page.board,
            endpoint: page.endpoint.0,
            nic: page.nic,
            session: page.session.0,
            tcp_port: (map.port(page.endpoint).ok()).filter(|_| page.ports.contains(&"tcp")),
            ports: page.ports,
            provider: printable(&page.provider),
            age: since(page.opened),
            opened: unix.as_secs(),
            counters: page
                .counters
                .into_iter()
                .map(|(label, value)| (printable(&label), value))
                .collect(),
            peers,
        }
    }

    /// Returns a title such as `endpoint 3 of board 0, process 7 (server)`.
    pub(crate) fn title(&self) -> String {
        format!(
            "endpoint {} of board {}, process {} ({})",
            self.endpoint, self.board, self.pid, self.program
        )
    }

    /// Returns a counter by its label; `None` if the process does not have it.
    pub(crate) fn counter(&self, label: &str) -> Option<u64> {
        let found = self.counters.iter().find(|(name, _)| name == label);
        found.map(|(_, value)| *value)
    }

    /// Returns the cells of the endpoint's line in a table, under [`HEADING`].
    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.board.to_string(),
            self.endpoint.to_string(),
            self.pid.to_string(),
            self.program.clone(),
            self.library.clone(),
            self.ports(),
            self.provider.clone(),
        ]
    }

    /// Returns a block with every property but the counters that [`crate::counters`] shows.
    pub(crate) fn block(&self) -> String {
        let mut out = format!("endpoint {} of board {}\n", self.endpoint, self.board);
        let name = nic::mx_name(self.nic).unwrap_or_else(|| "unknown".to_owned());
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(out, "  {name:<20}{value}");
        };
        line("process", &format!("{} ({})", self.pid, self.program));
        line("library", &self.library);
        line("NIC", &format!("{} ({name})", nic_text(self.nic)));
        line("session", &format!("{:#018x}", self.session));
        line("open for", &age_text(self.age));
        line("ports", &self.ports());
        if !self.provider.is_empty() {
            line("provider", &self.provider);
        }
        for label in STATE {
            if let Some(value) = self.counter(label) {
                line(&label.replace('_', " "), &value.to_string());
            }
        }
        out
    }

    /// Returns all properties.
    pub(crate) fn json(&self) -> Value {
        json!({
            "pid": self.pid,
            "program": non_empty(&self.program),
            "library": self.library,
            "board": self.board,
            "endpoint": self.endpoint,
            "nic_id": nic_text(self.nic),
            "session": format!("{:016x}", self.session),
            "opened": self.opened,
            "ports": self.ports,
            "tcp_port": self.tcp_port,
            "provider": non_empty(&self.provider),
            "counters": self.counters_json(),
        })
    }

    /// Returns the counters by label.
    pub(crate) fn counters_json(&self) -> Value {
        self.counters.iter().cloned().collect()
    }

    /// Returns the ports, such as `local tcp:28675 rdm`.
    fn ports(&self) -> String {
        let names = self.ports.iter().map(|&name| match self.tcp_port {
            Some(port) if name == "tcp" => format!("tcp:{port}"),
            _ => name.to_owned(),
        });
        names.collect::<Vec<_>>().join(" ")
    }
}

/// Formats a NIC id.
pub(crate) fn nic_text(nic: NicId) -> String {
    format!("{:016x}", nic.0)
}

/// Returns the kernel's name of a process; empty after its end.
fn program(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Formats an age in its two largest units: `1 d 2 h`, `3 min 4 s`.
fn age_text(age: Duration) -> String {
    let seconds = age.as_secs();
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let first = units.iter().position(|(n, _)| *n > 0).unwrap_or(3);
    let shown = units.iter().skip(first).take(2);
    let parts: Vec<String> = shown.map(|(n, unit)| format!("{n} {unit}")).collect();
    parts.join(" ")
}
