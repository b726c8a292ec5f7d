//! Which endpoints a tool is to show, and how.
//!
//! ```text
//!   -b BOARD  -e ENDPOINT  -p PID   --json      the same in all three
//!   --watch SECONDS  --count N  --all  --prometheus     mx_counters
//! ```
//!
//! Owns: the command line.
//! Knows nothing of: what is shown.

use lexopt::prelude::{Long, Short, ValueExt};
use mx_sys::Settings;
use mx_sys::published::Found;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// What all tools understand.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Args {
    /// Only this board.
    pub board: Option<u32>,
    /// Only endpoints of this number.
    pub endpoint: Option<u32>,
    /// Only this process.
    pub pid: Option<u32>,
    /// One JSON object instead of text.
    pub json: bool,
    /// For a node exporter's text file.
    pub prometheus: bool,
    /// Also what is zero.
    pub all: bool,
    /// Again and again, with so much time between.
    pub watch: Option<Duration>,
    /// How often; without it until nothing is left to show.
    pub count: Option<u64>,
}

/// Which options a tool has beside `--json` and `--help`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// `-b`.
    Board,
    /// `-b`, `-e`, `-p`.
    Endpoints,
    /// Those, and `-a`, `--watch`, `--count`, `--prometheus`.
    Watching,
}

impl Args {
    /// The command line; or how the process has to end because of it, after it was told why.
    pub fn parse(tool: &str, usage: &str, takes: Takes) -> Result<Self, ExitCode> {
        match Self::from(std::env::args_os(), takes) {
            Ok(Some(args)) => {
                for refused in Settings::of_process().1 {
                    eprintln!("{tool}: {refused}");
                }
                Ok(args)
            }
            Ok(None) => {
                print!("{usage}");
                Err(ExitCode::SUCCESS)
            }
            Err(error) => {
                eprint!("{tool}: {error}\n{usage}");
                Err(ExitCode::from(2))
            }
        }
    }

    /// `None` when help was asked for.
    fn from(
        args: impl IntoIterator<Item = OsString>,
        takes: Takes,
    ) -> Result<Option<Self>, lexopt::Error> {
        let mut parser = lexopt::Parser::from_iter(args);
        let mut parsed = Self::default();
        let endpoints = takes != Takes::Board;
        let watching = takes == Takes::Watching;
        while let Some(arg) = parser.next()? {
            match arg {
                Short('h') | Long("help") => return Ok(None),
                Long("json") => parsed.json = true,
                Short('b') => parsed.board = Some(parser.value()?.parse()?),
                Short('e') if endpoints => parsed.endpoint = Some(parser.value()?.parse()?),
                Short('p') if endpoints => parsed.pid = Some(parser.value()?.parse()?),
                Short('a') | Long("all") if watching => parsed.all = true,
                Long("prometheus") if watching => parsed.prometheus = true,
                Long("watch") if watching => {
                    parsed.watch = Some(parser.value()?.parse_with(seconds)?);
                }
                Long("count") if watching => {
                    parsed.count = Some(parser.value()?.parse_with(count)?);
                }
                other => return Err(other.unexpected()),
            }
        }
        if parsed.count.is_some() && parsed.watch.is_none() {
            return Err("--count goes with --watch".into());
        }
        if parsed.prometheus && (parsed.json || parsed.all || parsed.watch.is_some()) {
            return Err("--prometheus goes without --json, --all and --watch".into());
        }
        Ok(Some(parsed))
    }

    /// Whether this endpoint is to be shown.
    pub fn wants(&self, found: &Found) -> bool {
        let matches = |wanted: Option<u32>, is| wanted.is_none_or(|wanted| wanted == is);
        matches(self.board, found.page.board)
            && matches(self.endpoint, found.page.endpoint.0)
            && matches(self.pid, found.pid)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|n| (0.01..=86_400.0).contains(n));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("'{text}' is no number of seconds from 0.01 to 86400"))
}

fn count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|n| *n > 0);
    count.ok_or_else(|| format!("'{text}' is no number of times"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(takes: Takes, words: &[&str]) -> Option<Args> {
        let words = std::iter::once("tool").chain(words.iter().copied());
        Args::from(words.map(OsString::from), takes).ok().flatten()
    }

    #[test]
    fn every_option_is_read() {
        let words = [
            "-b", "1", "-e3", "-p", "77", "--json", "-a", "--watch", "0.5", "--count", "2",
        ];
        let expected = Args {
            board: Some(1),
            endpoint: Some(3),
            pid: Some(77),
            json: true,
            prometheus: false,
            all: true,
            watch: Some(Duration::from_millis(500)),
            count: Some(2),
        };
        assert_eq!(parse(Takes::Watching, &words), Some(expected));
    }

    #[test]
    fn what_a_tool_does_not_have_is_refused() {
        assert!(parse(Takes::Board, &["-e", "3"]).is_none());
        assert!(parse(Takes::Endpoints, &["--watch", "1"]).is_none());
        assert!(parse(Takes::Endpoints, &["--prometheus"]).is_none());
        assert!(parse(Takes::Endpoints, &["-e", "3", "-p", "1"]).is_some());
        assert!(parse(Takes::Watching, &["-e", "3", "--prometheus"]).is_some());
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            &["-b"][..],
            &["-b", "-1"],
            &["-e", "x"],
            &["--watch", "0"],
            &["--watch", "NaN"],
            &["--watch", "1", "--count", "0"],
            &["--count", "3"],
            &["--prometheus", "--json"],
            &["--prometheus", "--watch", "1"],
            &["something"],
        ] {
            assert!(parse(Takes::Watching, words).is_none(), "{words:?}");
        }
    }
}
