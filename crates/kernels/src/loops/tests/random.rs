//! Random numbers and extents for nests.

pub(super) const EXTENTS: [i64; 14] = [0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 17, 31, 32, 33];
/// Extents around those of blocks and chunks.
pub(super) const LARGE: [i64; 6] = [1023, 1024, 1025, 2047, 2048, 2050];

#[derive(Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    pub(super) fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
