//! Where the buffers of a segment lie in its arena.
//!
//! **Algorithm.** Greedy packing, as in "Efficient Memory Management for Deep Neural Net Inference"
//! (Pisarchyk and Lee, 2020): buffers are placed one after another at the lowest offset at which
//! they overlap no placed buffer that is alive at the same time. It runs for three orders: by
//! decreasing size, by decreasing lifetime, and by first use. The least arena is taken.
//!
//! **Invariant:** two buffers of which one begins before the other ends share no byte.
//!
//! **Cost:** quadratic in the number of buffers alive at one time, times the number of buffers. Of
//! more than [`MAX_ORDERED`] buffers only the order of first use is tried.

/// The alignment of a buffer in bytes: a cache line, and the widest vector.
pub(crate) const ALIGN: u64 = 64;

/// The most buffers for which all orders are tried.
const MAX_ORDERED: usize = 2_000;

/// A buffer that needs memory from its first step to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub bytes: u64,
    pub first: usize,
    pub last: usize,
}

/// The offset of each buffer, and the number of bytes of the arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArenaLayout {
    pub offsets: Vec<u64>,
    pub bytes: u64,
}

/// A number of bytes, rounded up. More bytes than there is memory stay too many.
fn aligned(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

impl ArenaLayout {
    /// Places buffers.
    pub fn of(buffers: &[Lifetime]) -> ArenaLayout {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|&i| buffers[i].first);
        let first = ArenaLayout::in_order(buffers, &order);
        if buffers.len() > MAX_ORDERED {
            return first;
        }
        order.sort_by_key(|&i| std::cmp::Reverse(buffers[i].bytes));
        let by_size = ArenaLayout::in_order(buffers, &order);
        order.sort_by_key(|&i| std::cmp::Reverse(buffers[i].last - buffers[i].first));
        let by_lifetime = ArenaLayout::in_order(buffers, &order);
        [by_size, by_lifetime]
            .into_iter()
            .fold(first, |best, layout| if layout.bytes < best.bytes { layout } else { best })
    }

    fn in_order(buffers: &[Lifetime], order: &[usize]) -> ArenaLayout {
        let mut layout = ArenaLayout { offsets: vec![0; buffers.len()], bytes: 0 };
        // The placed buffers by offset. Those that ended before the next begins are dropped if
        // buffers come in the order of their first use.
        let mut placed: Vec<usize> = Vec::new();
        let by_first_use = order.is_sorted_by_key(|&i| buffers[i].first);
        for &i in order {
            let Lifetime { bytes, first, last } = buffers[i];
            let bytes = aligned(bytes);
            if bytes == 0 {
                continue;
            }
            if by_first_use {
                placed.retain(|&j| buffers[j].last >= first);
            }
            let mut offset = 0u64;
            for &j in &placed {
                let other = buffers[j];
                if other.last < first || last < other.first {
                    continue;
                }
                if offset.saturating_add(bytes) <= layout.offsets[j] {
                    break;
                }
                offset = offset.max(layout.offsets[j].saturating_add(aligned(other.bytes)));
            }
            layout.offsets[i] = offset;
            layout.bytes = layout.bytes.max(offset.saturating_add(bytes));
            let at = placed.partition_point(|&j| layout.offsets[j] <= offset);
            placed.insert(at, i);
        }
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disjoint(buffers: &[Lifetime], layout: &ArenaLayout) -> bool {
        (0..buffers.len()).all(|i| {
            (0..i).all(|j| {
                let (a, b) = (buffers[i], buffers[j]);
                let (x, y) = (layout.offsets[i], layout.offsets[j]);
                a.last < b.first || b.last < a.first || x + a.bytes <= y || y + b.bytes <= x
            })
        })
    }

    #[test]
    fn buffers_share_memory_if_they_are_not_alive_together() {
        let buffer = |bytes, first, last| Lifetime { bytes, first, last };
        let buffers = [buffer(100, 0, 1), buffer(200, 1, 2), buffer(100, 2, 3), buffer(0, 0, 9)];
        let layout = ArenaLayout::of(&buffers);
        assert!(disjoint(&buffers, &layout));
        assert_eq!(layout.bytes, 128 + 256);
    }

    #[test]
    fn random_buffers_alive_together_share_no_byte() {
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..300 {
            let buffers: Vec<Lifetime> = (0..below(40))
                .map(|_| {
                    let first = below(30) as usize;
                    Lifetime { bytes: below(400), first, last: first + below(10) as usize }
                })
                .collect();
            let layout = ArenaLayout::of(&buffers);
            assert!(disjoint(&buffers, &layout), "{buffers:?} {layout:?}");
            let most = |step: usize| -> u64 {
                let alive = buffers.iter().filter(|b| b.first <= step && step <= b.last);
                alive.map(|b| b.bytes).sum()
            };
            assert!(layout.bytes >= (0..40).map(most).max().unwrap_or(0));
        }
    }
}
