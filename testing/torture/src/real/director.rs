//! Runs one program after the other, and reports the first that fails.
//!
//! ```text
//!   seed --> shape, settings, steps --> stage: nodes --> finish
//!                                         | Trouble
//!                                         `--> recorders, stacks, the command that repeats it
//! ```

use super::args::Args;
use super::figures::Figures;
use super::finish::finish;
use super::notes::Order;
use super::process;
use super::settings;
use super::stage::{INTERRUPTED, Stage, Trouble};
use bmi_host::library::Library;
use bmi_mx_torture::{Action, Shape, Step, program};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Totals of the run.
#[derive(Default)]
struct Sums {
    programs: u64,
    steps: u64,
    kills: u64,
    finalizes: u64,
    freezes: u64,
    drops: u64,
    resets: u64,
    /// Longest time that a program took to come to rest.
    ended: Duration,
    figures: Figures,
}

/// Runs programs until the time is over, or one fails.
pub(crate) fn run(args: &Args) -> ExitCode {
    // A library that is missing is reported once, and not by every node.
    let library = (!args.steps).then(|| Library::open(&args.library));
    let reserved = process::reserve_descriptors().map_err(|error| error.to_string());
    if let Err(error) = library.transpose().and(reserved) {
        eprintln!("bmi_mx_torture: {error}");
        return ExitCode::FAILURE;
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic.
        unsafe { libc::signal(signal, on_interrupt as *const () as usize) };
    }
    let begin = Instant::now();
    let mut sums = Sums::default();
    let mut seed = args.seed;
    let mut attempt = 0;
    while begin.elapsed() < Duration::from_secs(args.seconds)
        && args.programs.is_none_or(|most| sums.programs < most)
    {
        let Some(shape) = settings::shape(seed, args.shape.as_deref(), args.port == "rdm") else {
            eprintln!("bmi_mx_torture: no shape of that name");
            return ExitCode::from(2);
        };
        if args.steps {
            program(seed, &shape).for_each(|step| println!("{step}"));
            return ExitCode::SUCCESS;
        }
        match one(args, seed, attempt, &shape, &mut sums) {
            // Another process has an endpoint, for example another run of this program.
            Err(Trouble::Taken) => {
                attempt += 1;
                continue;
            }
            Err(Trouble::Interrupted) => return ExitCode::from(130),
            Err(Trouble::Fault { .. }) => return ExitCode::FAILURE,
            Ok(()) => {}
        }
        sums.programs += 1;
        seed += 1;
    }
    let Sums {
        programs,
        steps,
        kills,
        finalizes,
        freezes,
        drops,
        resets,
        ended,
        figures,
    } = &sums;
    println!(
        "torture over {}: {programs} programs (seeds {} to {}) in {:.0} s, {steps} steps: {kills} kills, \
         {finalizes} finalizes, {freezes} freezes, {drops} drops, {resets} resets, at rest within \
         {ended:.1?}\n  {}",
        args.port,
        args.seed,
        seed - 1,
        begin.elapsed().as_secs_f64(),
        figures.summary()
    );
    ExitCode::SUCCESS
}

extern "C" fn on_interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Runs a program, on processes of its own.
fn one(
    args: &Args,
    seed: u64,
    attempt: u64,
    shape: &Shape,
    sums: &mut Sums,
) -> Result<(), Trouble> {
    let begin = Instant::now();
    let mut stage = Stage::set(args, seed, attempt, shape.nodes)
        .inspect_err(|trouble| tell(args, seed, shape, trouble))?;
    let set = begin.elapsed();
    let (mut done, mut steps) = (0, set);
    let pace = settings::pace(seed);
    let outcome = program(seed, shape)
        .try_for_each(|step| {
            done += 1;
            act(&mut stage, step, sums)?;
            if !pace.is_zero() {
                stage.pause(pace)?;
            }
            Ok(())
        })
        .and_then(|()| {
            steps = begin.elapsed();
            finish(&mut stage, shape, args.port == "rdm")
        });
    let ended = begin.elapsed() - steps;
    sums.ended = sums.ended.max(ended);
    if args.verbose {
        let steps = steps - set;
        let name = shape.name;
        println!(
            "{seed} {name}: {done} steps, set in {set:.1?}, done in {steps:.1?}, ended in {ended:.1?}"
        );
    }
    sums.steps += done;
    sums.figures.add(&stage.figures);
    if let Err(trouble) = &outcome {
        tell(args, seed, shape, trouble);
        if let Trouble::Fault { node, look, .. } = trouble {
            println!("  after {done} of {} steps", shape.steps);
            keep(args, seed, &mut stage, *node, *look);
        }
    }
    outcome
}

fn act(stage: &mut Stage<'_>, step: Step, sums: &mut Sums) -> Result<(), Trouble> {
    let node = step.node;
    let lives = stage.lives(node);
    match step.action {
        Action::Restart if !lives => stage.restart(node)?,
        Action::Pause(span) => stage.pause(span)?,
        _ if !lives => {}
        Action::Kill => {
            stage.members[node].disturbed = true;
            sums.kills += 1;
            stage.kill(node)?;
        }
        Action::Finalize => {
            stage.members[node].disturbed = true;
            sums.finalizes += 1;
            stage.give(node, &Order::Finalize)?;
        }
        Action::Freeze(span) => {
            stage.members[node].disturbed = true;
            sums.freezes += 1;
            stage.freeze(node, span);
        }
        Action::Drop { to } => {
            stage.members[node].disturbed = true;
            stage.members[to].disturbed = true;
            sums.drops += 1;
            stage.give_step(node, step)?;
        }
        Action::Reset { .. } => {
            // Breaks any of the connections.
            stage
                .members
                .iter_mut()
                .for_each(|member| member.disturbed = true);
            sums.resets += 1;
            stage.give_step(node, step)?;
        }
        Action::Restart | Action::Cut { .. } => {}
        Action::Post { .. } | Action::Cancel { .. } | Action::Connect { .. } => {
            stage.give_step(node, step)?;
        }
    }
    Ok(())
}

fn tell(args: &Args, seed: u64, shape: &Shape, trouble: &Trouble) {
    let Trouble::Fault { node, text, .. } = trouble else {
        return;
    };
    println!(
        "torture over {}: seed {seed} ({}, {} nodes): n{node}: {text}",
        args.port, shape.name, shape.nodes
    );
    let shape = args.shape.as_ref();
    let shape = shape.map_or_else(String::new, |name| format!(" SHAPE={name}"));
    println!(
        "  again: make torture PORT={} SEED={seed} PROGRAMS=1{shape}",
        args.port
    );
}

/// Saves the recorders of the nodes.
fn keep(args: &Args, seed: u64, stage: &mut Stage<'_>, culprit: usize, look: bool) {
    let _ = std::fs::create_dir_all(&args.logs);
    for (node, member) in stage.members.iter_mut().enumerate() {
        let mut text = String::new();
        for (life, past) in member.past.iter().enumerate() {
            text += &format!("==== life {life}\n{past}");
        }
        if let Some(process) = &mut member.process {
            text += &format!("==== life {}, pid {}\n", member.life, process.pid());
            text += &process.recorder.text();
            if look {
                let stacks = process.stacks();
                if node == culprit {
                    println!("{stacks}");
                }
                text += &stacks;
            }
        }
        let path = args
            .logs
            .join(format!("torture-{}-{seed}-n{node}.log", args.port));
        match std::fs::write(&path, text) {
            Ok(()) => println!("  n{node}: {}", path.display()),
            Err(error) => eprintln!("bmi_mx_torture: {}: {error}", path.display()),
        }
    }
}
