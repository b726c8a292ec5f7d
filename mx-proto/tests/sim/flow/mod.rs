//! Flow control at scale. (`src/flow` tests its rules, and random programs of a few remotes.)
//!
//! ```text
//!   crowd     many peers on a virtual clock: when they settle, and the cost    (also an example)
//!   bounds    small crowds with asserted limits, and a kept text
//! ```

mod bounds;
mod crowd;
mod scenarios;
