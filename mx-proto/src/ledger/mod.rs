//! Credits for unexpected messages: a server's memory for them is a number, and whoever is busy
//! has the credits.
//!
//! One credit is [`CREDIT_BYTES`] of contents and the bookkeeping that goes with them. A server,
//! the *lender*, lends a part of its credits to its peers, the *borrowers*, and banks the rest. A
//! message costs [`cost`] credits; they come home when the host takes the message.
//!
//! A credit's life:
//!
//! ```text
//!              lent (handshake, extra)          pay              arrived
//!    +------+ -------------------------> free ------> on its way ------> waiting
//!    | bank |                             ^  |                              |
//!    +------+                  on_ride,   |  | Return          taken (by    |
//!     |  ^  ^                  Grant      |  |                 the host)    v
//!     |  |  |                             `--|---------- home ----------- owed
//!     |  |  `--------------------------------'                              |
//!     |  |             revoked                                              |
//!     |  `----------------------------------------------------------------- '
//!     |                kept: for a peer that has none, or from one that is quiet
//!     `-> drawn: to pull a message that was only offered, until the host takes it
//! ```
//!
//! `free` and `on its way` are at the borrower; it is not told of what the lender keeps: to it those
//! credits are still under way, and they count as the first ones home when it is lent more.
//!
//! Taking credits back, from who was quiet, for who wants:
//!
//! ```text
//!   borrower A             lender                   borrower B, quiet in this epoch
//!      |----- wants 8 -------->|   bank is low
//!      |                       |------ Revoke(8), E ----->|  decays, keeps what it used lately,
//!      |                       |<----- Return(6) ---------|  or all when it was short itself
//!      |<---- 6 extra ---------|   6 banked, then lent
//!      |                       |   Return(0): not asked again in this epoch
//! ```
//!
//! Nothing moves unless somebody wants, so a pattern that stays settles. Who has no credit at all
//! comes first; when the bank has none for it and nobody is quiet, credits of messages that the
//! host takes are kept from peers with more than a fair share, until everybody who waits has one.
//!
//! | file | holds |
//! |---|---|
//! | `byte`, `control` | the credit byte `E XXX NNNN`, and control messages |
//! | `borrower` | what one peer lent us |
//! | `lender/` | what we lend all peers: bank, records, lists, epochs, scavenging |
//! | `settings`, `fault`, `stats` | the knobs, the lies, the counters |
//!
//! Knows nothing of: messages, queues, sockets, clocks. Whoever drives it says what arrived, what
//! the host took, and what time it is.

mod borrower;
mod byte;
mod control;
mod fault;
mod lender;
mod settings;
mod stats;

pub use borrower::Borrower;
pub use byte::{CREDIT_BYTES, CREDIT_COST, CreditByte, cost};
pub use control::{CONTROL_MAX, Control, ControlWord};
pub use fault::Fault;
pub use lender::{Arrived, Lender, PEER_MAX};
pub use settings::{Impossible, LenderSettings};
pub use stats::{Account, LenderStats};
