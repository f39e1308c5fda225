//! The kernels of a test device: those of the CPU, launched by the thread of the queue.

use crate::blocks::Blocks;
use crate::queue::Commands;
use maquette_device::{
    Address, Backend, Binding, Computation, Failing, Fault, Kernel, Launch, PackKey, PackedOperand,
};
use maquette_ir::fault_injection::{Fault as Mistake, fault_injected};
use maquette_kernels::host_backend;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// The compiler of a device.
pub(crate) struct TestBackend(pub &'static Commands);

impl Backend for TestBackend {
    fn compile(&self, computations: &[Computation]) -> Vec<Option<Arc<dyn Kernel>>> {
        let commands = self.0;
        let own = |host: Option<Arc<dyn Kernel>>| {
            Some(Arc::new(TestKernel { host: host?, commands }) as Arc<dyn Kernel>)
        };
        host_backend().compile(computations).into_iter().map(own).collect()
    }
}

struct TestKernel {
    host: Arc<dyn Kernel>,
    commands: &'static Commands,
}

impl Kernel for TestKernel {
    fn bind(&self, binding: &Binding<'_>) -> Option<Arc<dyn Launch>> {
        let host = self.host.bind(binding)?;
        let layouts = binding.operands.iter().chain(binding.results);
        let spans = layouts.map(|layout| layout.span()).collect();
        Some(Arc::new(TestLaunch { host, spans, commands: self.commands }))
    }
}

struct TestLaunch {
    host: Arc<dyn Launch>,
    /// The bytes that each operand and each result spans, from its address; `None` without
    /// elements.
    spans: Arc<[Option<(i64, i64)>]>,
    commands: &'static Commands,
}

impl TestLaunch {
    /// The addresses where the bytes of operands are, found when the command is done.
    fn found(
        &self,
        command: &'static str,
        addresses: &[Address],
        which: &[usize],
    ) -> impl FnOnce(&Blocks) -> Result<Vec<Address>, Fault> + Send + use<> {
        let spans: Vec<_> = which.iter().map(|i| self.spans.get(*i).copied().flatten()).collect();
        let addresses: Vec<Address> = addresses.to_vec();
        move |blocks| {
            let find = |(at, span): (&Address, &Option<(i64, i64)>)| match *span {
                None => Ok(*at),
                Some((from, to)) => {
                    let len = usize::try_from(to - from).unwrap_or_default();
                    Ok(blocks.find(command, at.moved(from), len)?.moved(-from))
                }
            };
            addresses.iter().zip(&spans).map(find).collect()
        }
    }
}

impl Launch for TestLaunch {
    unsafe fn enqueue(
        &self,
        addresses: &[Address],
        packed: &[Option<Arc<dyn PackedOperand>>],
        failing: Option<Failing<'_>>,
    ) -> Result<(), Fault> {
        let all: Vec<usize> = (0..self.spans.len()).collect();
        let find = self.found("launch", addresses, &all);
        let (host, packed) = (self.host.clone(), packed.to_vec());
        let slot = failing.map(|failing| (failing.slot.clone(), failing.origin.cloned()));
        if let Some((slot, _)) = &slot {
            slot.begin();
        }
        let is_lost = fault_injected(Mistake::LateErrorsLost);
        let writes_anyway = fault_injected(Mistake::LaunchesAfterErrors);
        let of_launch = slot.clone();
        let run = move |found: Result<Vec<Address>, Fault>| {
            let run = |addresses: Vec<Address>| {
                // SAFETY: the elements are in live blocks; the caller of `enqueue` promises the
                // rest.
                let launched = || unsafe { host.enqueue(&addresses, &packed, None) };
                let panicked = |_| Err(Fault::Lost("a kernel has panicked".to_owned()));
                catch_unwind(AssertUnwindSafe(launched)).unwrap_or_else(panicked)
            };
            let Some((slot, origin)) = slot else { return found.and_then(run) };
            if slot.fault().is_some() && !writes_anyway {
                slot.end(Ok(()));
                return Ok(());
            }
            match found.and_then(run) {
                Err(Fault::Kernel { error, .. }) => {
                    let fault = Fault::Kernel { error, origin };
                    slot.end(if is_lost { Ok(()) } else { Err(fault) });
                    Ok(())
                }
                result => {
                    slot.end(result.clone());
                    result
                }
            }
        };
        let sent = self.commands.launch(find, run);
        if let (Err(lost), Some((slot, _))) = (&sent, of_launch) {
            slot.end(Err(lost.clone()));
        }
        sent
    }

    fn packs(&self) -> &[SmallVec<[usize; 1]>] {
        self.host.packs()
    }

    fn pack_key(&self, index: usize) -> Option<PackKey> {
        self.host.pack_key(index)
    }

    unsafe fn pack(
        &self,
        index: usize,
        addresses: &[Address],
    ) -> Result<Arc<dyn PackedOperand>, Fault> {
        let operands = self.packs().get(index).cloned().unwrap_or_default();
        let find = self.found("packing", addresses, &operands);
        let (host, (sender, packed)) = (self.host.clone(), channel());
        self.commands.launch(find, move |addresses| {
            // SAFETY: as in `enqueue`.
            let packed = addresses.and_then(|addresses| unsafe { host.pack(index, &addresses) });
            // The caller waits for the result.
            let _ = sender.send(packed);
            Ok(())
        })?;
        let lost = |_| Fault::Lost("the thread of the test device has ended".to_owned());
        packed.recv().map_err(lost)?
    }
}
