//! Runs a program on simulated nodes and checks every promise.
//!
//! ```text
//!   steps --> faults stop, dead nodes are restarted --> operations end if they can
//!         --> no matching operations are left --> everything is cancelled, at once
//!         --> each calls each and is answered --> each drops each: no peer is left --> all end: nothing is left
//! ```
//!
//! Owns: the nodes of one run.

use super::actor::{Actor, Known, World, called};
use super::plan::{Plan, WIDE};
use crate::rig::Rig;
use bmi_mx_torture::{Action, Step, Stream, Verb};
use mx_proto::Instant;
use mx_sim::{NodeId, Rng};
use std::collections::HashSet;
use std::time::Duration;

/// Longer than all time-outs of a plan in a row: a connect, a transfer, silence.
const SETTLE: Duration = Duration::from_secs(120);

/// First tag of the messages at the end, which no step uses.
const TALK: i32 = 500_000;
const REQUEST: i32 = TALK + 1;

/// Takes all steps, and those of every end.
///
/// # Panics
/// If a promise is broken.
pub fn run(plan: &Plan, steps: &[Step], began: impl FnOnce(&mx_sim::World)) -> [u64; 2] {
    let mut stage = Stage::new(plan);
    began(&stage.rig.world);
    for step in steps {
        stage.perform(step);
    }
    stage.settle();
    stage.nothing_left_that_matches();
    if plan.seed % 2 == 0 {
        stage.call_everything_off();
    }
    stage.take_in_the_rest();
    stage.call_everything_off();
    stage.check_order();
    stage.all_talk();
    stage.all_drop();
    stage.all_end();
    stage.known.ended
}

struct Stage<'a> {
    plan: &'a Plan,
    rig: Rig,
    actors: Vec<Actor>,
    known: World,
    /// Times at which cuts end.
    heals: Vec<(Instant, NodeId, NodeId)>,
    rng: Rng,
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut stage = Self {
            plan,
            rig: plan.rig(),
            actors: Vec::new(),
            known: World::default(),
            heals: Vec::new(),
            rng: plan.rng(2),
        };
        for me in 0..plan.shape.nodes {
            let profile = plan.profile(&mut stage.rng);
            stage.rig.add(profile);
            stage.actors.push(Actor::new(me, 0));
            stage.known.ages.push(0);
        }
        stage
    }

    fn lives(&self, me: NodeId) -> bool {
        self.known.ages[me] % 2 == 0 && !self.actors[me].finalized
    }

    fn acts(&self, me: NodeId) -> bool {
        self.lives(me) && self.actors[me].frozen_until <= self.rig.now()
    }

    fn perform(&mut self, step: &Step) {
        let me = step.node;
        self.rig.world.note(me, format!("--- {step}"));
        match &step.action {
            Action::Kill => self.kill(me),
            Action::Restart => self.restart(me),
            Action::Cut { with, span } => {
                self.rig.fabric.cut(me, *with);
                self.heals.push((self.rig.now().after(*span), me, *with));
            }
            Action::Reset { with } => self.rig.fabric.reset_links(me, *with),
            Action::Pause(span) => self.pause(*span),
            Action::Freeze(span) if self.acts(me) => {
                self.actors[me].frozen_until = self.rig.now().after(*span);
                self.rig.cluster.stall(me, *span);
            }
            action if self.acts(me) => self.act(me, action),
            _ => {}
        }
    }

    /// Carries out an action of a node.
    fn act(&mut self, me: NodeId, action: &Action) {
        let (actor, known) = (&mut self.actors[me], &mut self.known);
        let host = self.rig.host(me);
        match action {
            Action::Post {
                verb,
                to,
                tag,
                len,
                pieces,
            } => {
                actor.post(known, host, (*verb, *to, *tag), (*len, *pieces));
            }
            Action::Cancel { which } => {
                let labels = host.outstanding();
                if !labels.is_empty() {
                    actor.cancel(known, host, labels[*which as usize % labels.len()]);
                }
            }
            Action::Connect { to } => {
                let second_name = self.plan.two_names && self.rng.chance(0.3);
                let addr = actor.look_up(host, *to, second_name);
                actor.greet(known, host, addr);
            }
            Action::Drop { to } => {
                let wanted = self.rng.pick(&[[true, true], [true, false], [false, true]]);
                let wanted = |known: &Known| wanted[usize::from(known.is_caller())];
                actor.drop_addrs(known, host, *to, wanted);
            }
            Action::Finalize => {
                actor.collect(known, host);
                host.finalize();
                actor.finalized = true;
            }
            _ => unreachable!("not of a node alone"),
        }
    }

    fn kill(&mut self, me: NodeId) {
        if self.known.ages[me] % 2 != 0 {
            return;
        }
        self.collect();
        self.check_order_of(me);
        if self.plan.power_fails {
            self.rig.fabric.power_off(me);
        }
        self.rig.kill(me);
        self.known.ages[me] += 1;
    }

    /// Restarts a node. A finalized life first sends its remaining packets.
    fn restart(&mut self, me: NodeId) {
        if self.lives(me) {
            return;
        }
        self.kill(me);
        self.known.ages[me] += 1;
        let profile = self.plan.profile(&mut self.rng);
        self.rig.restart(me, profile);
        self.actors[me] = Actor::new(me, self.known.ages[me] / 2);
    }

    /// Lets time pass; cuts may end meanwhile.
    fn pause(&mut self, span: Duration) {
        let until = self.rig.now().after(span);
        self.heals.sort();
        while let Some((at, a, b)) = self.heals.first().copied() {
            if at > until {
                break;
            }
            self.run_until(at);
            self.heals.remove(0);
            // Another cut of the two may continue.
            let others = self
                .heals
                .iter()
                .any(|(_, x, y)| (*x, *y) == (a, b) || (*y, *x) == (a, b));
            if !others {
                self.rig.fabric.heal(a, b);
            }
        }
        self.run_until(until);
        self.collect();
    }

    fn run_until(&mut self, until: Instant) {
        let span = until.since(self.rig.now());
        self.rig.run_for(span);
    }

    fn collect(&mut self) {
        for me in 0..self.actors.len() {
            if self.lives(me) {
                let host = self.rig.peek(me);
                self.actors[me].collect(&mut self.known, host);
                if self.actors[me].frozen_until <= self.rig.now() {
                    let host = self.rig.host(me);
                    self.actors[me].forget(host);
                }
            }
        }
    }

    /// Stops the faults, restarts all, and waits until all operations that can end have ended.
    fn settle(&mut self) {
        for (_, a, b) in std::mem::take(&mut self.heals) {
            self.rig.fabric.heal(a, b);
        }
        for me in 0..self.actors.len() {
            self.restart(me);
        }
        let now = self.rig.now();
        let thawed = self.actors.iter().map(|actor| actor.frozen_until).max();
        self.pause(SETTLE + thawed.unwrap_or(now).since(now));
        for (me, actor) in self.actors.iter().enumerate() {
            let untold = actor.untold(self.rig.peek(me));
            assert!(untold.is_empty(), "n{me} was not told of {untold:?}");
        }
    }

    /// Checks that no send waits for a receive that waits for it. With few credits, messages that
    /// hold them may block others, though.
    fn nothing_left_that_matches(&mut self) {
        if self.plan.credit_limit != WIDE {
            return;
        }
        let mut sends = HashSet::new();
        let mut recvs = HashSet::new();
        for actor in &self.actors {
            let host = self.rig.peek(actor.me);
            for (label, posted) in actor.outstanding() {
                let Some(session) = actor.session(host, &posted.known) else {
                    panic!("n{}: {label} waits for no session", actor.me);
                };
                let (peer, tag) = (&posted.known.peer, posted.tag);
                match posted.verb {
                    Verb::Send => sends.insert((session, Stream::to(actor.me, peer, tag))),
                    Verb::Recv => recvs.insert((session, Stream::from(actor.me, peer, tag))),
                    Verb::SendUnexpected => panic!("n{}: {label} never ended", actor.me),
                };
            }
        }
        let both: Vec<_> = sends.intersection(&recvs).collect();
        assert!(both.is_empty(), "never matched: {both:?}");
    }

    /// Lets each caller send an unexpected message by each name, so that both sides know all
    /// sessions.
    fn open_all(&mut self) {
        for me in 0..self.actors.len() {
            let (actor, known) = (&mut self.actors[me], &mut self.known);
            let host = self.rig.host(me);
            for addr in actor.peers().into_values() {
                if !addr.is_caller() {
                    actor.greet(known, host, addr).expect("it is not refused");
                }
            }
        }
        self.pause(Duration::from_secs(3));
    }

    /// Receives everything left, until no message comes and all sends have ended. An unreceived
    /// message keeps its place, and its sender's credits.
    fn take_in_the_rest(&mut self) {
        self.open_all();
        loop {
            let before: u64 = self.actors.iter().map(Actor::count).sum();
            for me in 0..self.actors.len() {
                let (actor, known) = (&mut self.actors[me], &mut self.known);
                let host = self.rig.host(me);
                for (peer, addr) in actor.peers() {
                    if actor.session(host, &addr).is_none() && addr.is_caller() {
                        continue;
                    }
                    for tag in 0..self.plan.shape.tags {
                        let waits = actor.outstanding().filter(|(_, posted)| {
                            (posted.verb, posted.known.peer) == (Verb::Recv, peer)
                                && posted.known.tag(tag) == posted.tag
                        });
                        for _ in waits.count()..2 {
                            let len = self.plan.shape.message_max;
                            actor.post_to(known, host, (Verb::Recv, addr, tag), (len, 1));
                        }
                    }
                }
            }
            // Enough for the largest messages of all tags, on the slowest network.
            self.pause(Duration::from_secs(10));
            let after: u64 = self.actors.iter().map(Actor::count).sum();
            if before == after {
                for actor in &self.actors {
                    let sends = actor.outstanding();
                    let sends: Vec<_> = sends
                        .filter(|(_, posted)| posted.verb != Verb::Recv)
                        .map(|(label, posted)| (label, posted.known, posted.tag))
                        .collect();
                    let me = actor.me;
                    assert!(sends.is_empty(), "n{me}: not received: {sends:?}");
                }
                return;
            }
        }
    }

    fn call_everything_off(&mut self) {
        for me in 0..self.actors.len() {
            let actor = &mut self.actors[me];
            let host = self.rig.host(me);
            for label in host.outstanding() {
                actor.cancel(&mut self.known, host, label);
            }
            assert_eq!(host.method.operations(), 0, "n{me}");
        }
        self.collect();
        for actor in &self.actors {
            assert_eq!(actor.outstanding().count(), 0);
        }
    }

    fn check_order(&self) {
        (0..self.actors.len()).for_each(|me| self.check_order_of(me));
    }

    fn check_order_of(&self, me: NodeId) {
        self.actors[me].check_order(&self.known.loose);
    }

    /// Lets each node call each under every name, and both sides send what the other expects.
    fn all_talk(&mut self) {
        let names = if self.plan.two_names { 2 } else { 1 };
        let nodes = self.actors.len();
        let before: Vec<_> = self.actors.iter().map(Actor::count).collect();
        let mut calls = Vec::new();
        let mut labels = Vec::new();
        for me in 0..nodes {
            for (other, name) in (0..nodes).flat_map(|other| (0..names).map(move |n| (other, n))) {
                let (actor, known) = (&mut self.actors[me], &mut self.known);
                let host = self.rig.host(me);
                let call = actor.peers().remove(&called(other, name == 1));
                let call = call.unwrap_or_else(|| actor.look_up(host, other, name == 1));
                let what = (Verb::SendUnexpected, call, REQUEST);
                labels.push((me, what, actor.post_to(known, host, what, (100, 1))));
                calls.push((me, call));
            }
        }
        // Connecting may take one time-out, not more.
        self.rig.run_for(Duration::from_secs(20));
        for me in 0..nodes {
            let callers = self.actors[me].asked(self.rig.peek(me), REQUEST);
            assert_eq!(callers.len(), names * nodes, "n{me}: requests");
            calls.extend(callers.into_iter().map(|caller| (me, caller)));
        }
        for (me, addr) in calls {
            let (actor, known) = (&mut self.actors[me], &mut self.known);
            let host = self.rig.host(me);
            for verb in [Verb::Send, Verb::Recv] {
                let what = (verb, addr, TALK);
                labels.push((me, what, actor.post_to(known, host, what, (100, 1))));
            }
        }
        self.rig.run_for(Duration::from_secs(20));
        for (me, what, label) in labels {
            let error = self.rig.peek(me).error(label.expect("it is not refused"));
            assert_eq!(error, Some(0), "n{me}: {what:?} after all was healed");
        }
        self.collect();
        for (me, before) in before.into_iter().enumerate() {
            // A request, the messages after it, and an answer from each.
            let count = self.actors[me].count() - before;
            let expected = 3 * names * nodes;
            assert_eq!(count, expected as u64, "n{me}: messages at the end");
        }
    }

    /// Lets all nodes drop each other.
    fn all_drop(&mut self) {
        for me in 0..self.actors.len() {
            let (actor, known) = (&mut self.actors[me], &mut self.known);
            let host = self.rig.host(me);
            (0..known.ages.len()).for_each(|to| actor.drop_addrs(known, host, to, |_| true));
        }
        self.rig.run_for(Duration::from_secs(5));
        self.nothing_left("after all were dropped");
    }

    /// Ends all nodes.
    fn all_end(&mut self) {
        for me in 0..self.actors.len() {
            self.rig.host(me).finalize();
        }
        self.rig.run_for(Duration::from_secs(5));
        self.nothing_left("after the end");
        (0..self.actors.len()).for_each(|me| self.rig.peek(me).check_buffers());
    }

    fn nothing_left(&mut self, when: &str) {
        for me in 0..self.actors.len() {
            let method = &self.rig.peek(me).method;
            assert_eq!(method.peers().len(), 0, "n{me}: peers {when}");
            assert_eq!(method.operations(), 0, "n{me}: operations {when}");
            let endpoint = method.endpoint();
            let (inbox, flow) = (endpoint.inbox_stats(), endpoint.flow_stats());
            assert_eq!(inbox.bytes, 0, "n{me}: unexpected {when}");
            assert_eq!(flow.free, flow.total, "n{me}: credits {when}: {flow:?}");
            assert_eq!(endpoint.requests(), 0, "n{me}: requests {when}");
            assert_eq!(endpoint.remotes(), 0, "n{me}: remotes {when}");
            assert_eq!(endpoint.unexpected_bytes(), 0, "n{me}: bytes {when}");
            assert_eq!(method.deadline(), None, "n{me}: a timer {when}");
        }
    }
}
