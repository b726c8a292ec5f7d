//! The thread that resolves names again: the resolver may block for seconds, and no call of the host's but
//! look-up may.
//!
//! ```text
//!   a call, or the helper thread, finds questions --> none at work: a thread --> resolver --> answer
//!                                                                     ^  `-- more questions --'
//! ```
//!
//! It lives while there are questions. A child of `fork` does not have it, and begins its own.

use super::{Engine, own};
use mx_sys::{nic, thread};

/// Lets the questions of a method be answered.
#[cold]
pub(super) fn resolve(engine: &mut Engine) {
    if engine.resolving {
        return;
    }
    match thread::start("mx-names", run) {
        // It ends by itself.
        Ok(_) => engine.resolving = true,
        Err(error) => log::debug!("no thread to resolve names again: {error}"),
    }
}

fn run() {
    while let Some(instance) = own() {
        let questions = {
            let mut engine = instance.shared.lock();
            let method = engine.method.as_mut();
            let questions = method.map(|method| method.take_questions());
            let questions = questions.unwrap_or_default();
            engine.resolving = !questions.is_empty();
            questions
        };
        if questions.is_empty() {
            return;
        }
        for question in &questions {
            let name = question.name();
            match nic::resolve_again(&name.host, name.board, question.before()) {
                Ok(found) => {
                    if let Some(method) = &mut instance.shared.lock().method {
                        method.resolved(question, found.nic);
                    }
                }
                Err(error) => log::debug!("{name}: {error}"),
            }
        }
    }
}
