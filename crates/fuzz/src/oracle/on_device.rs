//! The modes on another device than the CPU.

use super::mode::{Mode, PreparedProgram, RunResult, WriteCount};
use super::program::TestProgram;
use super::subject::Subject;
use maquette_ir::Device;
use maquette_ops::{Result, Tensor};

/// The modes of the CPU alone: `text` runs a program's text as it is, in which types are on the
/// CPU; `differences` makes its inputs of numbers.
const OF_THE_CPU: [&str; 2] = ["text", "differences"];

/// A mode whose inputs are on a device, as is what the program makes. The outcome is compared with
/// that of the eager program on the CPU, in bits.
struct OnDevice {
    of: &'static dyn Mode,
    device: Device,
}

/// The modes on a device, but those that cannot be elsewhere.
pub fn on_device(modes: Vec<&'static dyn Mode>, device: Device) -> Vec<&'static dyn Mode> {
    let may_move = |of: &&'static dyn Mode| !OF_THE_CPU.contains(&of.name());
    // A command makes its modes once.
    let moved = |of| Box::leak(Box::new(OnDevice { of, device })) as &'static dyn Mode;
    match device {
        Device::Cpu => modes,
        _ => modes.into_iter().filter(may_move).map(moved).collect(),
    }
}

impl Mode for OnDevice {
    fn name(&self) -> &'static str {
        self.of.name()
    }

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
        let prepared = self.of.prepare(program, sample)?;
        // A call that runs on copies in host memory copies more than one in place.
        Ok(Box::new(move |inputs| {
            Ok(RunResult { written: WriteCount::Uncounted, ..prepared(inputs)? })
        }))
    }

    fn serves_all_sizes(&self, program: &TestProgram) -> bool {
        self.of.serves_all_sizes(program)
    }

    fn shares_as_eager(&self) -> bool {
        self.of.shares_as_eager()
    }

    fn keeps_nans(&self, program: &TestProgram) -> bool {
        self.of.keeps_nans(program)
    }

    fn device(&self) -> Device {
        self.device
    }

    fn is_symbolic(&self, program: &TestProgram) -> bool {
        self.of.is_symbolic(program)
    }
}
