//! The commands of a test device, and the thread that does them.
//!
//! A command goes through a channel to the thread. `sent` counts the commands that were sent,
//! `done` those that are done, so a fence is a number of commands. The first fault is kept until a
//! wait reports it; later commands are done nevertheless.

use crate::Blocks;
use maquette_device::{Address, Contents, Elements, Fault, Fence, Memory, OutOfMemory, Queue};
use maquette_ir::fault_injection::{Fault as Mistake, fault_injected};
use maquette_kernels::host_queue;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

type Command = Box<dyn FnOnce(&Mutex<Blocks>) -> Result<(), Fault> + Send>;

/// What the thread shares with those who send commands.
struct Shared {
    blocks: Mutex<Blocks>,
    progress: Mutex<Progress>,
    is_done: Condvar,
}

#[derive(Default)]
struct Progress {
    done: u64,
    fault: Option<Fault>,
}

/// A queue with its memory, which lives as long as the process.
pub(crate) struct TestQueue(pub(crate) &'static Commands);

/// What a device does, in the order of the calls.
pub(crate) struct Commands {
    shared: Arc<Shared>,
    /// The channel, and how many commands were sent.
    sent: Mutex<(Sender<Command>, u64)>,
}

/// A device that does no command. See [`hold`](crate::hold).
pub struct Held {
    /// Its end releases the commands.
    _release: Sender<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of the locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestQueue {
    /// # Errors
    /// The system makes no thread.
    pub fn start(index: u16) -> io::Result<TestQueue> {
        let shared = Arc::new(Shared {
            blocks: Mutex::new(Blocks::new()),
            progress: Mutex::default(),
            is_done: Condvar::new(),
        });
        let (sender, commands) = channel::<Command>();
        let own = shared.clone();
        thread::Builder::new().name(format!("test-device-{index}")).spawn(move || {
            for command in commands {
                let result = command(&own.blocks);
                let mut progress = lock(&own.progress);
                progress.done += 1;
                if let Err(fault) = result {
                    progress.fault.get_or_insert(fault);
                }
                own.is_done.notify_all();
            }
        })?;
        Ok(TestQueue(Box::leak(Box::new(Commands { shared, sent: Mutex::new((sender, 0)) }))))
    }

    pub fn memory(&self) -> &'static dyn Memory {
        self.0
    }

    pub fn commands(&self) -> &'static dyn Queue {
        self.0
    }

    /// Holds back the commands from now on, until the value is dropped.
    pub fn hold(&self) -> Held {
        let (release, released) = channel();
        // If the thread has ended, there is nothing to hold back.
        let _ = self.0.send(move |_| {
            let _ = released.recv();
            Ok(())
        });
        Held { _release: release }
    }

    pub fn live_blocks(&self) -> usize {
        // A fault stays for the wait of whoever sent the command.
        drop(self.0.reached(self.0.fence()));
        lock(&self.0.shared.blocks).len()
    }
}

impl Commands {
    fn send(
        &self,
        command: impl FnOnce(&Mutex<Blocks>) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Fence, Fault> {
        let mut sent = lock(&self.sent);
        let lost = |_| Fault::Lost("the thread of the test device has ended".to_owned());
        sent.0.send(Box::new(command)).map_err(lost)?;
        sent.1 += 1;
        Ok(Fence(sent.1))
    }

    /// Sends a command in two parts. `find` looks where bytes are. `run` uses them, and the host
    /// can allocate meanwhile: they stay allocated, since blocks are freed by later commands.
    pub fn launch<T>(
        &self,
        find: impl FnOnce(&Blocks) -> Result<T, Fault> + Send + 'static,
        run: impl FnOnce(Result<T, Fault>) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let command = move |blocks: &Mutex<Blocks>| {
            let found = find(&lock(blocks));
            run(found)
        };
        self.send(command).map(drop)
    }

    /// Waits until the commands before a fence are done.
    fn reached(&self, fence: Fence) -> MutexGuard<'_, Progress> {
        let progress = lock(&self.shared.progress);
        let is_before = |progress: &mut Progress| progress.done < fence.0;
        self.shared.is_done.wait_while(progress, is_before).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for Commands {
    fn allocate(&self, len: usize, contents: Contents) -> Result<Address, OutOfMemory> {
        lock(&self.shared.blocks).allocate(len, contents)
    }

    unsafe fn free(&self, at: Address, len: usize) {
        if fault_injected(Mistake::BlocksFreedAtOnce) {
            // The queue reports what the commands before find.
            let _ = lock(&self.shared.blocks).free(at, len);
            return;
        }
        // If the thread has ended, the process ends.
        let _ = self.send(move |blocks| lock(blocks).free(at, len));
    }

    fn release_cached(&self) {}
}

/// Elements with lists of their own, for a command that is done later.
struct OwnElements {
    at: Address,
    width: usize,
    sizes: Vec<i64>,
    strides: Vec<i64>,
}

impl OwnElements {
    fn of(e: Elements<'_>) -> OwnElements {
        OwnElements { at: e.at, width: e.width, sizes: e.sizes.into(), strides: e.strides.into() }
    }

    /// The same elements where their bytes are.
    fn found<'a>(&'a self, command: &'static str, blocks: &Blocks) -> Result<Elements<'a>, Fault> {
        let last =
            self.sizes.iter().zip(&self.strides).map(|(n, step)| (n - 1) * step).sum::<i64>();
        let len = if self.sizes.contains(&0) { 0 } else { (last as usize + 1) * self.width };
        // Elements that do not exist may have any address.
        let at = if len == 0 { self.at } else { blocks.find(command, self.at, len)? };
        let OwnElements { width, sizes, strides, .. } = self;
        Ok(Elements { at, width: *width, sizes, strides })
    }
}

impl Queue for Commands {
    unsafe fn upload(&self, from: &[u8], to: Address) -> Result<(), Fault> {
        let bytes = from.to_vec();
        self.send(move |blocks| {
            if bytes.is_empty() {
                return Ok(());
            }
            let to = lock(blocks).find("upload", to, bytes.len())?;
            // SAFETY: the bytes are in a live block; the caller of `upload` promises the rest.
            unsafe { host_queue().upload(&bytes, to) }
        })
        .map(drop)
    }

    unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), Fault> {
        if fault_injected(Mistake::ReadsDoNotWait) && !to.is_empty() {
            let from = lock(&self.shared.blocks).find("download", from, to.len())?;
            // SAFETY: the bytes are in a live block.
            return unsafe { host_queue().download(from, to) };
        }
        let (target, len) = (Address::of_host(std::ptr::NonNull::from(&mut *to).cast()), to.len());
        let fence = self.send(move |blocks| {
            if len == 0 {
                return Ok(());
            }
            let from = lock(blocks).find("download", from, len)?;
            // SAFETY: the caller of `download` waits below until this is done, and has the bytes.
            let to = unsafe { std::slice::from_raw_parts_mut(target.as_ptr(), len) };
            // SAFETY: as in `upload`.
            unsafe { host_queue().download(from, to) }
        })?;
        self.wait(fence)
    }

    unsafe fn copy(&self, from: Elements<'_>, to: Elements<'_>) -> Result<(), Fault> {
        let (from, to) = (OwnElements::of(from), OwnElements::of(to));
        self.send(move |blocks| {
            let blocks = lock(blocks);
            let (from, to) = (from.found("copy", &blocks)?, to.found("copy", &blocks)?);
            // SAFETY: the elements are in live blocks; the caller of `copy` promises the rest.
            unsafe { host_queue().copy(from, to) }
        })
        .map(drop)
    }

    fn fence(&self) -> Fence {
        Fence(lock(&self.sent).1)
    }

    fn wait(&self, fence: Fence) -> Result<(), Fault> {
        match self.reached(fence).fault.take() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }
}
