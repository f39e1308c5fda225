//! What every driver must do, as tests that each driver instantiates:
//!
//! ```ignore
//! maquette_device::conformance_suite!(maquette_ir::Device::Cpu);
//! ```
//!
//! The suite follows `hal/cts` of IREE. Each function panics with what it found.

mod kernels;

pub use kernels::{
    expressions_are_computed_in_order, nests_have_the_bits_of_their_evaluation,
    packed_operands_change_no_bit, the_error_of_a_kernel_is_found, zeros_and_copies_are_computed,
};

use crate::{Block, Contents, Elements, OpenDevice};

/// Declares a test for each function of the [suite](crate::conformance) on a device.
#[macro_export]
macro_rules! conformance_suite {
    ($device:expr) => {
        $crate::conformance_suite! { @tests $device;
            blocks_are_aligned_and_apart, zeros_are_zeros_also_in_used_memory,
            uploads_are_downloaded, commands_keep_their_order, elements_of_every_width,
            strides_and_dimensions, a_block_outlives_the_commands_before_its_end,
            fences_grow, host_memory_is_the_memory_of_the_host,
            zeros_and_copies_are_computed, expressions_are_computed_in_order,
            nests_have_the_bits_of_their_evaluation, the_error_of_a_kernel_is_found,
            packed_operands_change_no_bit,
        }
    };
    (@tests $device:expr; $($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                let device = $crate::open($device).expect("the device opens");
                $crate::conformance::$name(device);
            }
        )*
    };
}

/// A block with these bytes.
fn uploaded(device: &dyn OpenDevice, bytes: &[u8]) -> Block {
    let block = block(device, bytes.len(), Contents::Any);
    // SAFETY: the block has as many bytes, and belongs to this function.
    unsafe { device.queue().upload(bytes, block.at()) }.expect("an upload is taken");
    block
}

fn block(device: &dyn OpenDevice, len: usize, contents: Contents) -> Block {
    Block::allocate(device.memory(), len, contents).expect("there is memory")
}

fn downloaded(device: &dyn OpenDevice, block: &Block) -> Vec<u8> {
    let mut bytes = vec![0xEE; block.len()];
    // SAFETY: the block has as many bytes, and only this thread has it.
    unsafe { device.queue().download(block.at(), &mut bytes) }
        .expect("the commands have succeeded");
    bytes
}

/// Bytes that differ from each other, and from those of other seeds.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// Blocks begin at the target's alignment, and none overlaps another.
pub fn blocks_are_aligned_and_apart(device: &'static dyn OpenDevice) {
    let target = device.target();
    assert!(!(target.is_host_memory && target.reports_late), "{target:?}");
    let lens = [0, 1, 63, 64, 255, 256, 257, 4_096, 131_071, 131_072, 1 << 20];
    let blocks: Vec<Block> =
        lens.iter().chain(&lens).map(|len| block(device, *len, Contents::Any)).collect();
    let mut spans: Vec<(usize, usize)> =
        blocks.iter().map(|block| (block.at().number(), block.len())).collect();
    for (at, _) in &spans {
        let alignment = device.target().alignment;
        assert!(alignment.is_power_of_two() && alignment >= 64, "alignment {alignment}");
        assert_eq!(at % alignment, 0, "a block begins at {at:#x}");
    }
    spans.sort_unstable();
    for pair in spans.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "two blocks overlap: {pair:?}");
    }
}

/// [`Contents::Zeros`] holds in fresh memory and in memory that was used.
pub fn zeros_are_zeros_also_in_used_memory(device: &'static dyn OpenDevice) {
    for len in [1, 200, 5_000, 300_000] {
        for round in 0..3 {
            let block = block(device, len, Contents::Zeros);
            assert_eq!(downloaded(device, &block), vec![0; len], "round {round}");
            // SAFETY: the block has as many bytes, and belongs to this function.
            unsafe { device.queue().upload(&vec![0xFF; len], block.at()) }.expect("is taken");
        }
    }
}

/// What was uploaded is downloaded, also in parts.
pub fn uploads_are_downloaded(device: &'static dyn OpenDevice) {
    for len in [0, 1, 7, 64, 100_003] {
        let bytes = pattern(len, 1);
        let block = uploaded(device, &bytes);
        assert_eq!(downloaded(device, &block), bytes);
        let mut tail = vec![0; len / 2];
        // SAFETY: the last bytes of a block of this function.
        unsafe { device.queue().download(block.at().offset(len - len / 2), &mut tail) }
            .expect("the commands have succeeded");
        assert_eq!(tail, bytes[len - len / 2..]);
    }
}

fn row<'a>(block: &Block, sizes: &'a [i64], strides: &'a [i64], width: usize) -> Elements<'a> {
    Elements { at: block.at(), width, sizes, strides }
}

/// A command sees what those before it did, and nothing of those after it.
pub fn commands_keep_their_order(device: &'static dyn OpenDevice) {
    let queue = device.queue();
    let (first, second) = (pattern(10_000, 2), pattern(10_000, 3));
    let from = uploaded(device, &first);
    let copies: Vec<Block> = (0..8).map(|_| block(device, 10_000, Contents::Zeros)).collect();
    for (i, to) in copies.iter().enumerate() {
        let bytes = if i % 2 == 0 { &first } else { &second };
        // SAFETY: blocks of this function, of equal length, which do not overlap.
        unsafe {
            queue.upload(bytes, from.at()).expect("an upload is taken");
            let (sizes, strides) = ([10_000], [1]);
            let (from, to) = (row(&from, &sizes, &strides, 1), row(to, &sizes, &strides, 1));
            queue.copy(from, to).expect("a copy is taken");
        }
    }
    for (i, to) in copies.iter().enumerate() {
        let bytes = if i % 2 == 0 { &first } else { &second };
        assert!(downloaded(device, to) == *bytes, "copy {i} saw another command's bytes");
    }
}

/// Elements are copied whole, whatever their width.
pub fn elements_of_every_width(device: &'static dyn OpenDevice) {
    for width in [1, 2, 4, 8] {
        let bytes = pattern(30 * width, width);
        let (from, to) = (uploaded(device, &bytes), block(device, 30 * width, Contents::Zeros));
        let (sizes, there, here) = ([5, 6], [1, 5], [6, 1]);
        // SAFETY: 30 elements of blocks of this function.
        unsafe {
            device.queue().copy(row(&from, &sizes, &there, width), row(&to, &sizes, &here, width))
        }
        .expect("a copy is taken");
        let found = downloaded(device, &to);
        for (i, element) in found.chunks(width).enumerate() {
            let at = (i % 6 * 5 + i / 6) * width;
            assert_eq!(element, &bytes[at..at + width], "element {i} of {width} bytes");
        }
    }
}

/// Elements of any strides are copied, and the bytes between them stay.
pub fn strides_and_dimensions(device: &'static dyn OpenDevice) {
    let queue = device.queue();
    let (bytes, before) = (pattern(4_000, 5), pattern(4_000, 6));
    let from = uploaded(device, &bytes);
    type Layout = (&'static [i64], &'static [i64], &'static [i64]);
    let layouts: [Layout; 6] = [
        (&[], &[], &[]),
        (&[0, 7], &[7, 1], &[7, 1]),
        (&[9], &[0], &[3]),
        (&[4, 5, 6], &[30, 6, 1], &[200, 20, 2]),
        (&[3, 1, 8], &[1, 999, 3], &[8, 0, 1]),
        (&[2, 2, 2, 2, 2, 2], &[1, 2, 4, 8, 16, 32], &[64, 32, 16, 8, 4, 2]),
    ];
    for (sizes, there, here) in layouts {
        let to = uploaded(device, &before);
        // SAFETY: all elements lie in blocks of this function.
        unsafe { queue.copy(row(&from, sizes, there, 4), row(&to, sizes, here, 4)) }
            .expect("a copy is taken");
        let mut expected = before.clone();
        for i in 0..sizes.iter().product::<i64>() {
            let (mut rest, mut at, mut to) = (i, 0, 0);
            for d in (0..sizes.len()).rev() {
                (at, to) = (at + rest % sizes[d] * there[d], to + rest % sizes[d] * here[d]);
                rest /= sizes[d];
            }
            let (at, to) = (at as usize * 4, to as usize * 4);
            expected[to..to + 4].copy_from_slice(&bytes[at..at + 4]);
        }
        assert!(downloaded(device, &to) == expected, "sizes {sizes:?}, {there:?} to {here:?}");
    }
}

/// A block may be dropped while commands that use it are on their way, and its memory used again.
pub fn a_block_outlives_the_commands_before_its_end(device: &'static dyn OpenDevice) {
    let to: Vec<Block> = (0..50).map(|_| block(device, 20_000, Contents::Any)).collect();
    for (i, to) in to.iter().enumerate() {
        let from = uploaded(device, &pattern(20_000, i));
        let (sizes, strides) = ([20_000], [1]);
        // SAFETY: blocks of equal length that do not overlap.
        unsafe {
            device.queue().copy(row(&from, &sizes, &strides, 1), row(to, &sizes, &strides, 1))
        }
        .expect("a copy is taken");
    }
    for (i, to) in to.iter().enumerate() {
        assert!(downloaded(device, to) == pattern(20_000, i), "copy {i}");
    }
}

/// A later fence is not less, and each can be waited for, in any order.
pub fn fences_grow(device: &'static dyn OpenDevice) {
    let queue = device.queue();
    let mut fences = vec![queue.fence()];
    for i in 0..10 {
        let _block = uploaded(device, &pattern(1_000, i));
        fences.push(queue.fence());
    }
    assert!(fences.is_sorted(), "{fences:?}");
    for fence in fences.into_iter().rev() {
        queue.wait(fence).expect("the commands have succeeded");
    }
}

/// If the target says so, the host reads what a waited-for command wrote.
pub fn host_memory_is_the_memory_of_the_host(device: &'static dyn OpenDevice) {
    if !device.target().is_host_memory {
        return;
    }
    let bytes = pattern(5_000, 9);
    let block = uploaded(device, &bytes);
    device.queue().wait(device.queue().fence()).expect("the commands have succeeded");
    // SAFETY: host memory of as many bytes, which no command uses any more.
    let found = unsafe { std::slice::from_raw_parts(block.at().as_ptr(), block.len()) };
    assert_eq!(found, bytes);
}
