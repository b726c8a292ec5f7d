//! Options that tools share: the endpoints to show.

use clap::Parser;
use mx_sys::Settings;
use mx_sys::published::Found;

/// Reads the command line; ends the process where it makes no sense, or asks for help.
pub fn read<A: Parser>(tool: &str) -> A {
    let args = A::parse();
    for refused in Settings::of_process().1 {
        eprintln!("{tool}: {refused}");
    }
    args
}

/// The choice of endpoints.
#[derive(Clone, Debug, clap::Args)]
pub struct Which {
    /// Only endpoints of this board
    #[arg(short)]
    pub board: Option<u32>,
    /// Only endpoints of this number
    #[arg(short)]
    pub endpoint: Option<u32>,
    /// Only endpoints of this process
    #[arg(short)]
    pub pid: Option<u32>,
}

impl Which {
    /// Whether this endpoint is to be shown.
    pub fn wants(&self, found: &Found) -> bool {
        let matches = |wanted: Option<u32>, is| wanted.is_none_or(|wanted| wanted == is);
        matches(self.board, found.page.board)
            && matches(self.endpoint, found.page.endpoint.0)
            && matches(self.pid, found.pid)
    }
}
