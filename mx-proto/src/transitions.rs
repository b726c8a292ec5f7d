//! Transitions: tables of legal transitions between states, and the record of transitions made.
//!
//! ```text
//!   transition_table! { State { Init => Wait: "a message is posted", ... } }
//!      TRANSITIONS        the table: docs/states.md shows it, and a test compares both
//!      note(from, to)   debug builds only: checks the transition and records it
//!      recorded::take()      transitions made by this thread since the last call, for tests
//! ```

/// Legal transition of a state machine, as declared in its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition<S> {
    /// State before.
    pub from: S,
    /// State after.
    pub to: S,
    /// Cause of the transition.
    pub when: &'static str,
}

/// Declares the table `TRANSITIONS` of an enum, `note` and `recorded` (see the module).
#[macro_export]
macro_rules! transition_table {
    ($stage:ident { $($from:ident => $to:ident: $when:literal,)* }) => {
        /// All legal transitions.
        pub const TRANSITIONS: &[$crate::transitions::Transition<$stage>] = &[$(
            $crate::transitions::Transition { from: $stage::$from, to: $stage::$to, when: $when },
        )*];

        /// Records a transition and checks that it is legal; does nothing if the state stays. Nothing in release
        /// builds.
        #[inline]
        pub(crate) fn note(from: $stage, to: $stage) {
            #[cfg(debug_assertions)]
            {
                let known = TRANSITIONS.iter().any(|step| (step.from, step.to) == (from, to));
                assert!(known || from == to, "{from} -> {to}");
                if known {
                    recorded::count(from, to);
                }
            }
            #[cfg(not(debug_assertions))]
            let _ = (from, to);
        }

        /// Transitions made by this thread.
        #[cfg(debug_assertions)]
        pub mod recorded {
            use super::$stage;
            use std::cell::{Cell, RefCell};
            use std::collections::BTreeMap;

            /// Number of times that each transition was made, by the states before and after; transitions that were
            /// never made are absent.
            pub type Recorded = BTreeMap<($stage, $stage), u64>;

            thread_local! {
                static RECORDED: RefCell<Recorded> = const { RefCell::new(Recorded::new()) };
                /// Whether this thread counts. RECORDED has a destructor, and if there is no memory to register it, the
                /// C library ends the process.
                static ASKED: Cell<bool> = const { Cell::new(false) };
            }

            pub(super) fn count(from: $stage, to: $stage) {
                if ASKED.get() {
                    RECORDED.with_borrow_mut(|met| *met.entry((from, to)).or_default() += 1);
                }
            }

            /// Returns how often this thread has made each transition since its last call, and sets the counts to zero.
            /// The first call returns an empty map and begins counting. Debug builds only.
            pub fn take() -> Recorded {
                ASKED.set(true);
                RECORDED.take()
            }
        }
    };
}
