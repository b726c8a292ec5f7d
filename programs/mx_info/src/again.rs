//! Showing something once or repeatedly.

use crate::endpoints::NONE;
use crate::text::show;
use std::num::NonZeroU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Options for repeating.
#[derive(Default, clap::Args)]
pub(crate) struct Again {
    /// Repeat at this interval, until no such endpoint is open
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) watch: Option<Duration>,
    /// Repeat at most N times
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<NonZeroU64>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|n| (0.01..=86_400.0).contains(n));
    let seconds = seconds.ok_or("it is no number of seconds from 0.01 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

impl Again {
    /// Shows the text that `look` returns, once or repeatedly; `look` gets the time since its last call, and returns
    /// `None` when nothing is left to show. `gap` separates two texts. Returns an error if there was nothing at the
    /// first call.
    pub(crate) fn show(
        &self,
        gap: &str,
        mut look: impl FnMut(Option<Duration>) -> Option<String>,
    ) -> Result<(), String> {
        let mut last: Option<Instant> = None;
        let mut shown = 0;
        loop {
            let now = Instant::now();
            let Some(text) = look(last.map(|last| now - last)) else {
                break;
            };
            let gap = if shown > 0 { gap } else { "" };
            shown += 1;
            if !show(&format!("{gap}{text}"))
                || self.count.is_some_and(|count| shown >= count.get())
            {
                break;
            }
            let Some(pause) = self.watch else { break };
            last = Some(now);
            sleep(pause);
        }
        if shown == 0 {
            return Err(NONE.into());
        }
        Ok(())
    }
}
