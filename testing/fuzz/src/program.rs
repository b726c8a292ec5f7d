//! Running an input as a program: step by step, each followed by the checks.

use crate::input::Input;

/// World that an input acts on.
pub(crate) trait Program {
    /// Takes one step.
    fn step(&mut self, input: &mut Input<'_>);
    /// Panics if a property does not hold that must hold after every step.
    fn check(&self);
    /// Ends everything, and panics if anything is left.
    fn finish(self);
}

/// Runs a program until the input is used up, or for `steps_max` steps.
pub(crate) fn run(mut program: impl Program, input: &mut Input<'_>, steps_max: usize) {
    for _ in 0..steps_max {
        if input.is_empty() {
            break;
        }
        program.step(input);
        program.check();
    }
    program.finish();
}
