//! Model test: random programs of a few nodes, each a lender to and a borrower from every other.
//!
//! ```text
//!   node: lanes -> Borrower --- packets with credit fields, in order, delayed ---> Lender -> here -> taken
//!         some are hostile: any message, any credit fields, any Return, at any time
//! ```
//!
//! After every step: no credit is made or lost, waiting messages are within the credits lent and two slots for each
//! remote, and both ends agree except for what is in flight. No honest node breaks a rule, and the first breach of a
//! hostile one ends its link. At the end every lane makes progress in every round.

use super::*;
use mx_sim::{Rng, seeds};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Message {
    number: u32,
    cost: u32,
    lane: Lane,
    /// Payment of a message that has been copied; `None` for others.
    copied: Option<Payment>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// A message with `aux` of its header, and the credits to draw for fetching it (0: it carries its data).
    Message {
        message: Message,
        aux: u32,
        fetch: u32,
    },
    Revoke(u32),
    Return(u32),
    Credit,
}

#[derive(Clone, Copy, Debug)]
struct Here {
    paid: Payment,
    fetch: u32,
}

/// State of a node with respect to another node.
#[derive(Default)]
struct Side {
    open: bool,
    borrower: Borrower,
    lanes: [VecDeque<Message>; 2],
    next: u32,
    /// Number of the last message of each lane that has come from that node.
    seen: [u32; 2],
    out: VecDeque<(What, CreditFields)>,
    here: Vec<Here>,
    revoke: Option<u32>,
    answer: Option<u32>,
    credit: bool,
}

impl Side {
    /// Returns the cost of the queued messages that are not paid for.
    fn waiting(&self) -> u32 {
        let plain = |message: &&Message| message.copied.is_none();
        let all = self.lanes.iter().flatten().filter(plain);
        all.map(|message| message.cost).sum()
    }
}

struct Node {
    flow: Flow,
    settings: Settings,
    all: Table,
    sides: Vec<Side>,
    hostile: bool,
    /// Payments of waiting messages from lost nodes; `drawn`: draws without a message.
    gone: Vec<(Source, Payment)>,
    drawn: Vec<u32>,
}

struct Program {
    rng: Rng,
    nodes: Vec<Node>,
    taken: u64,
}

impl Program {
    fn new(seed: u64, hostile: bool) -> Self {
        let mut rng = Rng::new(seed);
        let count = rng.within(2..=5);
        let mut nodes: Vec<Node> = (0..count).map(|_| Node::new(&mut rng, count)).collect();
        // At least one node is honest.
        for node in nodes.iter_mut().skip(1) {
            node.hostile = hostile && rng.chance(0.5);
        }
        let mut program = Self {
            rng,
            nodes,
            taken: 0,
        };
        for a in 0..count {
            for b in 0..a {
                program.meet(a, b);
            }
        }
        program
    }

    /// Connects two nodes: each lends to the other.
    fn meet(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let node = &mut self.nodes[from];
            let credit_limit = node.flow.first_credits(node.all.0[to].1);
            assert!(node.flow.open(&mut node.all, to as u32, credit_limit));
            // Sometimes totals are about to wrap.
            let near = self.rng.pick(&[0, u32::MAX - 10, u32::MAX - 200]);
            let account = &mut node.all.0[to].0;
            for total in [&mut account.told, &mut account.arrived, &mut account.taken] {
                *total = total.wrapping_add(near);
            }
            let side = &mut self.nodes[to].sides[from];
            side.open = true;
            side.borrower = Borrower::open(credit_limit).shifted(near);
            side.seen = [0; 2];
        }
    }

    fn part(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let node = &mut self.nodes[from];
            let side = &mut node.sides[to];
            if !std::mem::take(&mut side.open) {
                continue;
            }
            let copies = side.lanes.iter().flatten();
            for message in copies.filter(|message| message.copied.is_some()) {
                node.flow.uncopy(message.cost);
            }
            for lane in &mut side.lanes {
                lane.retain(|message| message.copied.is_none());
            }
            (side.revoke, side.answer, side.credit) = (None, None, false);
            side.out.clear();
            let (account, source) = &mut node.all.0[to];
            // The data of offered messages cannot be fetched any more.
            let (fetch, stay): (Vec<Here>, Vec<Here>) =
                side.here.drain(..).partition(|here| here.fetch > 0);
            for here in fetch {
                node.flow.taken(account, *source, here.paid);
            }
            let source = *source;
            let all = node.flow.close(&mut node.all, to as u32);
            let stay = stay
                .into_iter()
                .filter(|here| all || matches!(here.paid, Payment::Credits(_)));
            node.gone.extend(stay.map(|here| (source, here.paid)));
        }
    }

    fn step(&mut self) {
        let a = self.rng.index(self.nodes.len());
        let b = (a + 1 + self.rng.index(self.nodes.len() - 1)) % self.nodes.len();
        match self.rng.below(100) {
            0..15 => self.post(a, b),
            15..40 => _ = self.transmit(a, b),
            40..65 => _ = self.deliver(a, b),
            65..80 => _ = self.take(a, b),
            80..88 => self.poll(a),
            88..90 => self.nodes[a].flow.end_epoch(),
            90..92 => self.draw(a),
            92..94 => self.reclaim(a),
            94 if self.rng.chance(0.2) => {
                let open = self.nodes[a].sides[b].open;
                self.part(a, b);
                // A node that has broken a rule does not come back.
                if open && self.rng.chance(0.9) {
                    self.meet(a, b);
                }
            }
            _ if self.nodes[a].hostile => self.lie(a, b),
            _ => {}
        }
        for node in &self.nodes {
            node.check();
        }
        self.agree(a, b);
        self.agree(b, a);
    }

    fn post(&mut self, a: usize, b: usize) {
        let cost = self.rng.pick(&[1, 1, 1, 2, 3, 9, 12]);
        let lane = self.rng.pick(&Lane::ALL);
        let node = &mut self.nodes[a];
        let side = &mut node.sides[b];
        if !side.open || side.lanes[lane as usize].len() > 30 {
            return;
        }
        let paid = side.borrower.payment(cost, lane);
        let copied =
            paid.filter(|paid| matches!(paid, Payment::Credits(_)) && self.rng.chance(0.2));
        let copied = copied.filter(|_| node.flow.copy(cost));
        if let Some(paid) = copied {
            side.borrower.pay(paid);
        }
        side.next += 1;
        side.lanes[lane as usize].push_back(Message {
            number: side.next,
            cost,
            lane,
            copied,
        });
    }

    fn transmit(&mut self, a: usize, b: usize) -> bool {
        let node = &mut self.nodes[a];
        let side = &mut node.sides[b];
        if !side.open {
            return false;
        }
        let waiting = side.waiting();
        let account = &mut node.all.0[b].0;
        let fields = node.flow.credit_fields(account, &side.borrower, waiting);
        let what = if let Some(credits) = side.revoke.take() {
            What::Revoke(credits)
        } else if let Some(credits) = side.answer.take() {
            What::Return(credits)
        } else if let Some(message) = side.next_message() {
            if let What::Message { message, .. } = message
                && message.copied.is_some()
            {
                node.flow.uncopy(message.cost);
            }
            message
        } else if side.credit || fields.wanted > 0 {
            What::Credit
        } else {
            return false;
        };
        side.credit = false;
        Flow::on_told(account, &mut side.borrower, &fields);
        side.out.push_back((what, fields));
        true
    }

    /// Delivers the oldest packet from one node to another. Returns false if there is none.
    fn deliver(&mut self, a: usize, b: usize) -> bool {
        let Some((what, fields)) = self.nodes[a].sides[b].out.pop_front() else {
            return false;
        };
        let (credit, more, epoch) = fields.words();
        assert_eq!(CreditFields::from_words(credit, more, epoch), fields);
        if let Err(violation) = self.nodes[b].receive(a, what, &fields) {
            // A node with false credits may break a rule itself, and be caught by the hostile one.
            let honest = !self.nodes[a].hostile && !self.nodes[b].hostile;
            assert!(!honest, "{violation:?}: {what:?}");
            self.part(a, b);
        }
        true
    }

    fn take(&mut self, a: usize, b: usize) -> bool {
        let at = self.rng.index(self.nodes[a].sides[b].here.len());
        let done = self.nodes[a].take(b, at);
        self.taken += u64::from(done);
        done
    }

    fn poll(&mut self, a: usize) {
        let node = &mut self.nodes[a];
        for _ in 0..8 {
            let Some((remote, say)) = node.flow.poll(&mut node.all) else {
                return;
            };
            let side = &mut node.sides[remote as usize];
            assert!(side.open);
            match say {
                CreditMessage::Credit => side.credit = true,
                CreditMessage::Revoke(credits) => assert_eq!(side.revoke.replace(credits), None),
            }
        }
    }

    fn draw(&mut self, a: usize) {
        let node = &mut self.nodes[a];
        if self.rng.chance(0.5) && !node.drawn.is_empty() {
            let at = self.rng.index(node.drawn.len());
            node.flow.undraw(node.drawn.swap_remove(at));
        } else {
            let credits = 1 + self.rng.below(20) as u32;
            if node.flow.draw(credits) {
                node.drawn.push(credits);
            }
        }
    }

    fn reclaim(&mut self, a: usize) {
        let node = &mut self.nodes[a];
        if !node.gone.is_empty() {
            let at = self.rng.index(node.gone.len());
            let (source, paid) = node.gone.swap_remove(at);
            node.flow.reclaim(source, paid);
        }
    }

    /// Sends a packet that no honest node sends, or one with false fields.
    fn lie(&mut self, a: usize, b: usize) {
        if !self.nodes[a].sides[b].open {
            return;
        }
        let any = |rng: &mut Rng| {
            let any = rng.bits() as u32;
            rng.pick(&[0, 1, 2, 3, 50, 1000, 1 << 24, u32::MAX, any])
        };
        let rng = &mut self.rng;
        let (bits, credit) = (rng.bits(), any(rng));
        let fields = CreditFields::from_words(credit, any(rng), bits as u8);
        let message = Message {
            number: u32::MAX,
            cost: any(rng).max(1),
            lane: rng.pick(&Lane::ALL),
            copied: None,
        };
        let what = match rng.below(4) {
            0 => What::Message {
                message,
                aux: rng.below(5) as u32,
                fetch: 0,
            },
            1 => What::Return(any(rng)),
            2 => What::Revoke(any(rng)),
            _ => What::Credit,
        };
        self.nodes[a].sides[b].out.push_back((what, fields));
    }

    /// Checks that the counts of a borrower and its lender differ only by what is in flight.
    fn agree(&self, a: usize, b: usize) {
        let (side, lender) = (&self.nodes[a].sides[b], &self.nodes[b]);
        if !side.open || self.nodes[a].hostile || lender.hostile {
            return;
        }
        let account = &lender.all.0[a].0;
        let spent = |(what, _): &(What, CreditFields)| match what {
            What::Message {
                message,
                aux,
                fetch,
            } if *aux == 0 => {
                if *fetch > 0 {
                    1
                } else {
                    message.cost
                }
            }
            What::Return(credits) => *credits,
            _ => 0,
        };
        let under_way: u32 = side.out.iter().map(spent).sum();
        let copied = side.lanes.iter().flatten().filter(|m| m.copied.is_some());
        let kept = copied.map(|m| m.cost).sum::<u32>() + side.answer.unwrap_or(0);
        let ahead = side.borrower.sent().wrapping_sub(account.arrived);
        assert_eq!(ahead, under_way + kept);
        // The borrower never uses more than it has been told.
        assert!(ahead + side.borrower.free() <= account.unused());
    }

    /// Lets everything happen that needs no new message, again and again: every lane makes progress in every round.
    fn finish(&mut self) {
        let count = self.nodes.len();
        for node in &mut self.nodes {
            for credits in node.drawn.drain(..) {
                node.flow.undraw(credits);
            }
            node.reclaim_all();
        }
        let pairs: Vec<(usize, usize)> = (0..count)
            .flat_map(|a| (0..count).map(move |b| (a, b)))
            .filter(|(a, b)| a != b)
            .collect();
        let lanes = self.nodes.iter().flat_map(|node| &node.sides);
        let longest = lanes.flat_map(|side| &side.lanes).map(VecDeque::len).max();
        for round in 0..longest.unwrap_or(0) + 3 {
            // Credits told in one round are known before the next one begins.
            for (a, b) in pairs.iter().chain(&pairs) {
                while self.transmit(*a, *b) {}
                while self.deliver(*a, *b) {}
            }
            for (a, b) in &pairs {
                while self.nodes[*a].take(*b, 0) {
                    self.taken += 1;
                }
            }
            for a in 0..count {
                self.poll(a);
                self.nodes[a].check();
            }
            if round % 4 == 0 {
                self.nodes[0].flow.end_epoch();
            }
        }
        for (a, b) in pairs {
            let (node, other) = (&self.nodes[a], &self.nodes[b]);
            if !node.hostile && !other.hostile {
                let left: usize = node.sides[b].lanes.iter().map(VecDeque::len).sum();
                assert!(left == 0 || !node.sides[b].open, "{left} left");
                self.agree(a, b);
            }
        }
        let honest = self.nodes.iter().all(|node| !node.hostile);
        for node in self.nodes.iter_mut().filter(|node| !node.hostile) {
            assert!(node.sides.iter().all(|side| side.here.is_empty()));
            node.reclaim_all();
            let stats = node.flow.stats();
            assert_eq!((stats.drawn, stats.tombstones), (0, 0));
            // A hostile node may block copies for it.
            assert!(stats.copies == 0 || !honest);
        }
    }
}

impl Side {
    /// Returns the next message: the older one of the two lanes' first, or the other if that cannot be sent.
    fn next_message(&mut self) -> Option<What> {
        let mut heads: Vec<Message> = self
            .lanes
            .iter()
            .filter_map(|lane| lane.front().copied())
            .collect();
        heads.sort_by_key(|message| message.number);
        for message in heads {
            let Message { cost, lane, .. } = message;
            let borrower = &mut self.borrower;
            let whole = message.copied.or_else(|| borrower.payment(cost, lane));
            let (paid, fetch) = match whole {
                Some(paid) => (paid, 0),
                None => match borrower.payment(1, lane) {
                    Some(paid) => (paid, cost - 1),
                    None => continue,
                },
            };
            if message.copied.is_none() {
                borrower.pay(paid);
            }
            self.lanes[lane as usize].pop_front();
            return Some(What::Message {
                message,
                aux: paid.aux(),
                fetch,
            });
        }
        None
    }
}

impl Node {
    fn new(rng: &mut Rng, count: usize) -> Self {
        let settings = Settings {
            bytes: CREDIT * rng.within(16..=400),
            largest: 11 * CREDIT as u32,
            first: rng.pick(&[0, 1, 8, 80]),
            source_share: rng.pick(&[10, 50, 100]),
        };
        let account = |_| (Lender::default(), Source(rng.below(3)));
        Self {
            flow: Flow::new(&settings),
            all: Table((0..count).map(account).collect()),
            sides: (0..count).map(|_| Side::default()).collect(),
            settings,
            hostile: false,
            gone: Vec::new(),
            drawn: Vec::new(),
        }
    }

    fn receive(&mut self, from: usize, what: What, fields: &CreditFields) -> Result<(), Violation> {
        let side = &mut self.sides[from];
        side.borrower.on_credit_fields(fields);
        match what {
            What::Message {
                message,
                aux,
                fetch,
            } => {
                let cost = if fetch > 0 { 1 } else { message.cost };
                let paid = Payment::of(aux, cost)?;
                let account = &mut self.all.0[from].0;
                let updated = self.flow.arrived(account, paid)?;
                if message.number != u32::MAX {
                    let seen = &mut side.seen[message.lane as usize];
                    assert!(message.number > std::mem::replace(seen, message.number));
                }
                side.here.push(Here { paid, fetch });
                side.credit |= self.flow.is_overdue(account);
                if updated {
                    self.flow.note_use(&mut self.all, from as u32);
                }
            }
            What::Revoke(credits) => {
                if side.answer.is_none() {
                    let waiting = side.waiting();
                    side.answer = Some(side.borrower.give_back(credits, waiting));
                }
            }
            What::Return(credits) => {
                self.flow.returned(&mut self.all, from as u32, credits)?;
            }
            What::Credit => {}
        }
        if fields.wanted > 0 {
            self.sides[from].credit |= self.flow.wants(&mut self.all, from as u32, fields.wanted);
        }
        Ok(())
    }

    fn reclaim_all(&mut self) {
        for (source, paid) in self.gone.drain(..) {
            self.flow.reclaim(source, paid);
        }
    }

    /// Takes a waiting message, if there is one and credits to fetch it. Returns whether it did.
    fn take(&mut self, from: usize, at: usize) -> bool {
        let side = &mut self.sides[from];
        let Some(here) = side.here.get(at).copied() else {
            return false;
        };
        if here.fetch > 0 && !self.flow.draw(here.fetch) {
            return false;
        }
        side.here.remove(at);
        let (account, source) = &mut self.all.0[from];
        side.credit |= self.flow.taken(account, *source, here.paid);
        self.flow.undraw(here.fetch);
        true
    }

    /// Checks that no credit is made or lost, and that waiting messages are within what was lent.
    fn check(&self) {
        let stats = self.flow.stats();
        assert_eq!(
            stats.free + stats.lent + stats.drawn + stats.copies + stats.tombstones,
            stats.total
        );
        assert!(stats.lent + stats.copies <= self.settings.total() - self.settings.reserve());
        assert_eq!(stats.drawn, self.drawn.iter().sum());
        let credits = |paid: &Payment| match paid {
            Payment::Credits(cost) => *cost,
            Payment::Slot(_) => 0,
        };
        let gone = self.gone.iter().map(|(_, paid)| credits(paid).max(1));
        assert_eq!(stats.tombstones, gone.sum());
        let (mut lent, mut wanted, mut open) = (0, 0, 0);
        for ((account, _), side) in self.all.0.iter().zip(&self.sides) {
            let here = side
                .here
                .iter()
                .map(|here| credits(&here.paid))
                .sum::<u32>();
            assert_eq!(account.waiting(), here);
            let in_slots = side
                .here
                .iter()
                .filter(|here| credits(&here.paid) == 0)
                .count();
            assert_eq!(account.in_slots() as usize, in_slots);
            let (unused, due) = (account.unused(), account.due());
            assert_eq!(
                u64::from(account.credit_limit()),
                u64::from(here) + u64::from(unused) + u64::from(due)
            );
            assert!(account.credit_limit() <= self.settings.most());
            assert!(side.open || account.credit_limit() == 0);
            assert!(side.borrower.free() < 1 << 24);
            lent += account.credit_limit();
            wanted += u64::from(account.wanted());
            open += u32::from(side.open);
        }
        assert_eq!(
            (stats.lent, stats.remotes, self.flow.wanted),
            (lent, open, wanted)
        );
    }
}

/// Runs programs of `steps` steps. Returns the number of messages taken and of violations found.
fn run(seed: u64, hostile: bool, steps: u32) -> (u64, u64) {
    let mut program = Program::new(seed, hostile);
    for _ in 0..steps {
        program.step();
    }
    program.finish();
    let found = |node: &Node| node.flow.stats().violations;
    (program.taken, program.nodes.iter().map(found).sum())
}

#[test]
fn honest_nodes_keep_every_rule_and_none_starves() {
    let mut taken = 0;
    seeds::each(2_000, |seed| {
        let (messages, violations) = run(seed, false, 1_000);
        assert_eq!(violations, 0);
        taken += messages;
    });
    assert!(taken > 100_000, "{taken}");
}

#[test]
fn hostile_nodes_fail_at_once_and_cost_no_other() {
    let mut found = 0;
    seeds::each(2_000, |seed| found += run(seed, true, 1_000).1);
    assert!(found > 500, "{found}");
}
