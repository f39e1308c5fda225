//! The test device passes the suite of every driver, and finds what drivers do not look for.

use maquette_device::{Block, Contents, Elements, Fault, open};
use maquette_ir::Device;
use maquette_test_device::live_blocks;

maquette_device::conformance_suite!(Device::test(0));

/// Tests of faults, on a device of their own: a wait reports the fault of whichever command failed.
#[test]
fn a_command_outside_of_a_block_is_a_late_fault() {
    let device = open(Device::test(1)).unwrap();
    let queue = device.queue();
    let block = Block::allocate(device.memory(), 100, Contents::Zeros).unwrap();
    let stale = |found: Result<(), Fault>| matches!(found, Err(Fault::StaleAddress { .. }));
    // SAFETY: the device checks the addresses, which are wrong.
    unsafe { queue.upload(&[1; 101], block.at()) }.unwrap();
    assert!(stale(queue.wait(queue.fence())), "one byte too many");
    let elements = |strides| Elements { at: block.at(), width: 4, sizes: &[5, 5], strides };
    // SAFETY: as above.
    unsafe { queue.copy(elements(&[5, 1]), elements(&[6, 1])) }.unwrap();
    assert!(stale(queue.wait(queue.fence())), "the last element ends after the block");
    queue.wait(queue.fence()).expect("a fault is reported once");
    let at = block.at();
    assert_eq!(live_blocks(1), 1);
    drop(block);
    assert_eq!(live_blocks(1), 0);
    // SAFETY: as above.
    assert!(stale(unsafe { queue.download(at, &mut [0; 4]) }), "the block was freed");
    let other = Block::allocate(device.memory(), 100, Contents::Zeros).unwrap();
    assert_ne!(other.at(), at, "an address is handed out once");
}
