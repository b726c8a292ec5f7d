//! The credit ledger against random peers, honest and lying, and at scale.
//!
//! ```text
//!   program   a few peers, every interleaving, all identities checked after every step
//!   crowd     many peers, a virtual clock: how soon it settles, what it costs    (also an example)
//!   bounds    small crowds with asserted bounds, as a text that is kept
//! ```

mod bounds;
mod crowd;
mod program;
mod scenarios;
