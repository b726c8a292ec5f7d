//! Flow control at scale. (Its rules, and random programs of a few remotes, are tested in `src/flow`.)
//!
//! ```text
//!   crowd     many peers, a virtual clock: how soon it settles, what it costs    (also an example)
//!   bounds    small crowds with asserted bounds, as a text that is kept
//! ```

mod bounds;
mod crowd;
mod scenarios;
