//! The thread that resolves names again: the resolver may block for seconds, and no call of the host's but
//! look-up may.
//!
//! ```text
//!   a call, or the helper thread, finds questions --> none at work: a thread --> resolver --> answer
//!                                                                     ^  `-- more questions --'
//! ```
//!
//! The thread lives while there are questions. A child of `fork` does not have it, and begins its own.

use super::life::PersistentState;
use super::own_instance;
use mx_sys::{nic, thread};

/// Lets the questions of a method be answered.
#[cold]
pub(super) fn resolve(beside: &mut PersistentState) {
    if beside.resolving {
        return;
    }
    match thread::start("mx-names", thread::RESOLVER_STACK, run) {
        // It ends by itself.
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
