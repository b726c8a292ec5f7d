//! Checks at the end of a program.
//!
//! ```text
//!   steps done --> drain --> quiet? ------> withdraw --> order --> talk --> finalize --> nothing is left
//!                             | no operation outstanding with dead nodes
//!                             | no send outstanding, because everything is received
//!                             | no session of a caller that is dead or has called again
//!                             ` without disturbances: all sent messages have arrived
//! ```
//!
//! Owns: these rules.

use super::notes::{Order, Report};
use super::stage::{Stage, TIMEOUT, Trouble, fault};
use bmi_mx_torture::{Shape, Stream, Verb};
use std::time::{Duration, Instant};

/// Ends a program. `fabric`: links may go down by themselves.
pub(crate) fn finish(stage: &mut Stage<'_>, shape: &Shape, fabric: bool) -> Result<(), Trouble> {
    stage.thaw_all()?;
    let living = stage.living();
    for node in &living {
        let order = Order::Drain {
            tags: shape.tags,
            len: shape.message_max,
            nodes: living.clone(),
        };
        stage.give(*node, &order)?;
    }
    quiet(stage, fabric)?;
    for node in &living {
        let fates = stage.fates();
        stage.give(*node, &Order::Withdraw(fates))?;
    }
    all(stage, &living, |stage, node| stage.members[node].withdrawn)?;
    for node in &living {
        let loose = stage.loose.iter().filter(|stream| stream.to == *node);
        let loose = loose.copied().collect();
        stage.give(*node, &Order::Check(loose))?;
    }
    all(stage, &living, |stage, node| stage.members[node].checked)?;
    for node in &living {
        stage.give(*node, &Order::Talk(living.clone()))?;
    }
    all(stage, &living, |stage, node| {
        stage.members[node].talked.is_some()
    })?;
    for node in &living {
        stage.give(*node, &Order::Finalize)?;
    }
    all(stage, &living, |stage, node| {
        stage.members[node].process.is_none()
    })?;
    shared_memory(stage)
}

/// Waits until a condition holds for each of these nodes.
fn all(
    stage: &mut Stage<'_>,
    nodes: &[usize],
    so: impl Fn(&Stage<'_>, usize) -> bool,
) -> Result<(), Trouble> {
    let begin = Instant::now();
    loop {
        let Some(node) = nodes.iter().find(|node| !so(stage, **node)) else {
            return Ok(());
        };
        if begin.elapsed() > TIMEOUT {
            // The node's recorder then shows what it waits for.
            stage.give(*node, &Order::Report)?;
            stage.pause(Duration::from_millis(100))?;
            return Err(Trouble::Fault {
                node: *node,
                text: format!("when the program was over it was not done in {TIMEOUT:?}"),
                look: true,
            });
        }
        stage.hear(Duration::from_millis(20))?;
    }
}

/// Waits until no operation is outstanding that has to end by itself.
fn quiet(stage: &mut Stage<'_>, fabric: bool) -> Result<(), Trouble> {
    let begin = Instant::now();
    loop {
        let living = stage.living();
        for member in &mut stage.members {
            member.report = None;
        }
        for node in &living {
            stage.give(*node, &Order::Report)?;
        }
        all(stage, &living, |stage, node| {
            stage.members[node].report.is_some()
        })?;
        // No node may be finalizing either.
        let over = |member: &super::stage::Member| member.process.is_none();
        let ended =
            (0..stage.members.len()).all(|node| stage.lives(node) || over(&stage.members[node]));
        let wrong = unfinished(stage, fabric);
        match wrong {
            None if ended => return Ok(()),
            Some((node, text)) if begin.elapsed() > TIMEOUT => {
                let text = format!("after {TIMEOUT:?}: {text}");
                return Err(Trouble::Fault {
                    node,
                    text,
                    look: true,
                });
            }
            _ => stage.pause(Duration::from_millis(20))?,
        }
    }
}

/// Returns an operation that has to end by itself, and its node.
fn unfinished(stage: &Stage<'_>, fabric: bool) -> Option<(usize, String)> {
    let none = Report::default();
    let report = |node: usize| stage.members[node].report.as_ref().unwrap_or(&none);
    let any_disturbed = stage.members.iter().any(|member| member.disturbed);
    for node in stage.living() {
        for left in &report(node).left {
            let with = left.with;
            let why = match left.verb {
                _ if !stage.lives(with.node) => "which is dead",
                Verb::SendUnexpected | Verb::Send => "which takes all it gets",
                Verb::Recv => continue,
            };
            let text = format!(
                "operation {:#x}, {:?} tag {} len {}, is outstanding with {with}, {why}",
                left.label, left.verb, left.tag, left.len
            );
            return Some((node, text));
        }
        let callers = &report(node).callers;
        for (at, (peer, is_over)) in callers.iter().enumerate() {
            let earlier = callers[..at].iter().any(|(of, _)| of.node == peer.node);
            let why = if *is_over {
                "may not be dropped, although its session is over"
            } else if !stage.lives(peer.node) {
                "is dead, and its session is not over"
            } else if earlier {
                "has called, and its earlier session is not over"
            } else {
                continue;
            };
            return Some((node, format!("{peer} {why}")));
        }
    }
    // A message lost without a cause, if neither node was disturbed.
    for to in stage.living() {
        for from in stage.living() {
            let disturbed = stage.members[from].disturbed || stage.members[to].disturbed;
            if disturbed || fabric && any_disturbed {
                continue;
            }
            let all = report(from).sent.iter();
            for (stream, sent) in all.filter(|(stream, _)| stream.to == to) {
                let count = |of: &[(Stream, u64)]| -> u64 {
                    let these = of.iter().filter(|(known, _)| known == stream);
                    these.map(|(_, count)| count).sum()
                };
                let (came, given_up) = (count(&report(to).got), count(&report(to).given_up));
                if came + given_up < *sent {
                    let text = format!(
                        "{sent} messages of {stream:?} were sent, {came} came, and {given_up} \
                         receives for them were called off"
                    );
                    return Some((to, text));
                }
            }
        }
    }
    None
}

/// Checks that these processes leave nothing in shared memory.
fn shared_memory(stage: &Stage<'_>) -> Result<(), Trouble> {
    let Ok(list) = std::fs::read_dir("/dev/shm") else {
        return Ok(());
    };
    for entry in list.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let numbers: Vec<_> = name.split(|c: char| !c.is_ascii_digit()).collect();
        let ours = |pid: &u32| numbers.contains(&pid.to_string().as_str());
        if stage.pids.iter().any(ours) {
            return Err(fault(0, format!("/dev/shm/{name} stays")));
        }
    }
    Ok(())
}
