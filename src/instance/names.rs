//! The thread that resolves names again: the resolver may block for seconds, and of the host's calls only look-up may
//! block.
//!
//! ```text
//!   a call, or the helper thread, finds questions --> no thread yet: start one --> resolver --> answer
//!                                                                       ^  `-- more questions --'
//! ```
//!
//! The thread ends when no questions are left. A child of `fork` does not have it, and starts its own.

use super::life::PersistentState;
use super::own_instance;
use mx_sys::{nic, thread};

/// Starts a thread that answers the method's questions, unless one is running.
#[cold]
pub(super) fn resolve(beside: &mut PersistentState) {
    if beside.resolving {
        return;
    }
    match thread::start("mx-names", thread::RESOLVER_STACK, run) {
        // The thread ends by itself.
        Ok(_) => beside.resolving = true,
        Err(error) => log::debug!("no thread to resolve names again: {error}"),
    }
}

fn run() {
    while let Some(instance) = own_instance() {
        let questions = {
            let mut slot = instance.shared.lock();
            let questions = slot.engine().map(|method| method.take_questions());
            let questions = questions.unwrap_or_default();
            slot.persistent.resolving = !questions.is_empty();
            questions
        };
        if questions.is_empty() {
            return;
        }
        for question in &questions {
            let name = question.name();
            match nic::resolve_again(&name.host, name.board, question.before()) {
                Ok(found) => {
                    if let Some(method) = instance.shared.lock().engine() {
                        method.resolved(question, &found.nics());
                    }
                }
                Err(error) => log::debug!("{name}: {error}"),
            }
        }
    }
}
