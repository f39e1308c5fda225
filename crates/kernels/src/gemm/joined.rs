//! Several products with one left factor, as one job of the thread pool.
//!
//! **Problem.** The query, the key and the value of an attention are products of the same rows.
//! Each alone may be too small to be divided among threads, and each waits for its own last thread.
//!
//! **Algorithm.** Each product is divided into tasks, as it would be alone, but for the work of
//! all. Tasks are ordered by their place in their product: first those that begin a product, last
//! those that end one. A thread takes neighbours in this order, so it gets about the same columns
//! of each product. What follows is often divided by columns, too, as an attention by heads.
//!
//! Products may also go *in step*: a task computes the same rows and columns of each, one product
//! after another. Then the visitor of a product may read these elements of the products before.
//!
//! **Invariant:** the bits are those of the products alone, since no sum depends on tasks.

use super::blocks::{Blocks, SMALL, Split};
use super::epilogue::Operand;
use super::pack::{Factor, Right};
use super::special::{self, Path};
use super::visitor::{VisitedParts, output};
use super::{EpilogueVisitor, Float, Mat, RightFactor, visited_product};
use crate::error::Result;
use crate::isa::Isa;
use crate::thread_pool;
use crate::view::{View, ViewMut};
use smallvec::SmallVec;

/// With so many tasks for each thread, it does not matter whether all have as many.
const FEW_TASKS: usize = 8;

/// A product with the left factor of others.
pub(crate) struct JoinedProduct<'a> {
    pub right: RightFactor<'a>,
    pub columns: usize,
    pub out: Option<ViewMut<'a>>,
    pub visitor: Option<&'a dyn EpilogueVisitor>,
}

/// The products of `a[m, k]` with each right factor, as [`visited_product`] computes them.
/// `in_step` says that visitors may read what earlier products have at the same rows and columns.
/// Then all have the same number of columns.
///
/// # Errors
/// Scratch memory cannot be had, or that of a visitor.
///
/// # Safety
/// As [`visited_product`], for each product. No two write the same memory, and no factor is
/// written.
pub(crate) unsafe fn joined_products<F: Float>(
    isa: Isa,
    threads: usize,
    (a, [m, k]): (&View<'_>, [usize; 2]),
    products: &mut [JoinedProduct<'_>],
    in_step: bool,
) -> Result<()> {
    let columns = products.iter().fold(0usize, |sum, p| sum.saturating_add(p.columns));
    let work = m.saturating_mul(columns).saturating_mul(k);
    let left = Operand::<F>::new(a, 0);
    let is_by_blocks = |p: &JoinedProduct<'_>| match p.right {
        RightFactor::Packed(packed) => packed.panels::<F>().is_some_and(|b| b.isa == isa),
        RightFactor::Matrix(b) => {
            let sizes = [m, p.columns, k];
            special::path(isa, sizes, &left, &Operand::new(b, 0)) == Path::Blocks
        }
    };
    let alone = |products: &mut [JoinedProduct<'_>]| {
        products.iter_mut().try_for_each(|p| {
            let (sizes, out) = ([m, p.columns, k], p.out.as_mut());
            // SAFETY: the caller's promise.
            unsafe { visited_product::<F>(isa, threads, (a, p.right), sizes, out, p.visitor) }
        })
    };
    if threads <= 1 || work <= SMALL || !products.iter().all(is_by_blocks) {
        return alone(products);
    }
    let factor = |p: &JoinedProduct<'_>| match p.right {
        RightFactor::Matrix(b) => {
            Some(Factor { kernels: F::kernels(isa), b: Operand::<F>::new(b, 0) })
        }
        RightFactor::Packed(_) => None,
    };
    let factors: SmallVec<[Option<Factor<F>>; 4]> = products.iter().map(factor).collect();
    let rights = products.iter().zip(&factors).map(|(p, factor)| match (p.right, factor) {
        (RightFactor::Packed(packed), _) => packed.panels::<F>().map(Right::Packed),
        (RightFactor::Matrix(_), factor) => factor.as_ref().map(Factor::right),
    });
    let Some(rights) = rights.collect::<Option<SmallVec<[Right<'_, F>; 4]>>>() else {
        return alone(products);
    };
    let pieces = products.iter_mut().zip(rights).map(|(p, b)| {
        let visited = p.visitor.map(|visitor| VisitedParts::new(visitor, p.out.is_none()));
        (p.columns, b, output::<F>(p.out.as_mut(), p.columns), visited)
    });
    let pieces: SmallVec<[_; 4]> = pieces.collect();
    let all = |a: Mat<F>| {
        let blocks = pieces.iter().map(|&(n, b, out, visited)| Blocks {
            visited,
            ..Blocks::new(isa, [m, n, k], a, b, out)
        });
        let blocks: SmallVec<[Blocks<'_, F>; 4]> = blocks.collect();
        // SAFETY: the caller's promise.
        unsafe { run(&blocks, threads, work, in_step) }
    };
    let sizes = [m, columns, k];
    // SAFETY: the caller's promise.
    unsafe {
        match factors.iter().all(Option::is_some) {
            true => special::with_rows_or_strips(isa, threads, sizes, left, &all),
            false => special::with_rows(isa, threads, sizes, left, &all),
        }
    }
}

/// Computes products by blocks, if they can be divided so that all tasks are of one job. Otherwise
/// one after another.
///
/// # Safety
/// As [`joined_products`].
unsafe fn run<F: Float>(
    blocks: &[Blocks<'_, F>],
    threads: usize,
    work: usize,
    in_step: bool,
) -> Result<()> {
    let splits = match in_step {
        true => splits_in_step(blocks, threads, work),
        false => Some(splits(blocks, threads, work)),
    };
    // The sums of segments are added behind all tasks of their product.
    let is_one_job = |splits: &SmallVec<[Split; 4]>| splits.iter().all(|s| s.segments.is_none());
    let Some(splits) = splits.filter(is_one_job) else {
        // SAFETY: the caller's promise.
        return blocks.iter().try_for_each(|b| unsafe { b.run(threads) });
    };
    let task = |product: usize, t: usize| {
        let (Some(b), Some(split)) = (blocks.get(product), splits.get(product)) else {
            return Ok(());
        };
        let (rows, panels) = b.part(*split, t);
        // SAFETY: the caller's promise; tasks write their own rows and panels of their product.
        unsafe { b.task(rows, panels) }
    };
    let counts: SmallVec<[usize; 4]> =
        blocks.iter().zip(&splits).map(|(b, split)| b.tasks(*split)).collect();
    if in_step {
        let tasks = counts.first().copied().unwrap_or(0);
        return thread_pool::try_for(tasks, true, &|t| {
            (0..blocks.len()).try_for_each(|product| task(product, t))
        });
    }
    let tasks = in_order(&counts);
    thread_pool::try_for(tasks.len(), true, &|t| task(tasks[t].0, tasks[t].1))
}

/// How products in step are divided: all as the first one that something follows. `None` if their
/// rows or panels are not the same.
fn splits_in_step<F: Float>(
    blocks: &[Blocks<'_, F>],
    threads: usize,
    work: usize,
) -> Option<SmallVec<[Split; 4]>> {
    let first = blocks.iter().find(|b| b.visited.is_some()).or(blocks.first())?;
    let is_alike = |b: &Blocks<'_, F>| (b.sizes, b.width) == (first.sizes, first.width);
    let split = first.split(threads, work);
    blocks.iter().all(is_alike).then(|| SmallVec::from_elem(split, blocks.len()))
}

/// How each product is divided: as it would be alone, but for the work of all. Tasks that are few
/// have fewer panels if each thread then gets as many of them as the others.
fn splits<F: Float>(blocks: &[Blocks<'_, F>], threads: usize, work: usize) -> SmallVec<[Split; 4]> {
    let alone: SmallVec<[Split; 4]> = blocks.iter().map(|b| b.split(threads, work)).collect();
    let most = alone.iter().map(|split| split.panels).max().unwrap_or(1);
    let of_at_most = |panels: usize| -> SmallVec<[Split; 4]> {
        let split = |s: &Split| Split { panels: s.panels.min(panels), ..*s };
        alone.iter().map(split).collect()
    };
    let tasks = |splits: &[Split]| {
        blocks.iter().zip(splits).map(|(b, split)| b.tasks(*split)).sum::<usize>()
    };
    if tasks(&alone) >= FEW_TASKS * threads {
        return alone;
    }
    let is_even = |splits: &SmallVec<[Split; 4]>| tasks(splits).is_multiple_of(threads);
    (most.div_ceil(2)..=most).rev().map(of_at_most).find(is_even).unwrap_or(alone)
}

/// The tasks of products that have so many each, as pairs of a product and a task of it: in the
/// order of where a task begins in its product, as a share of the product's tasks.
fn in_order(counts: &[usize]) -> SmallVec<[(usize, usize); 32]> {
    let of_product = |(product, &count): (usize, &usize)| (0..count).map(move |t| (product, t));
    let mut tasks: SmallVec<[(usize, usize); 32]> =
        counts.iter().enumerate().flat_map(of_product).collect();
    tasks.sort_by(|(p, t), (q, u)| (t * counts[*q]).cmp(&(u * counts[*p])).then(p.cmp(q)));
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PackedMatrix;
    use crate::view::Ptr;
    use std::ops::Range;

    struct Nothing;

    impl EpilogueVisitor for Nothing {
        fn scratch(&self, _elements: usize) -> usize {
            0
        }

        unsafe fn visit(
            &self,
            _rows: Range<usize>,
            _columns: Range<usize>,
            _sums: (Ptr<u8>, [i64; 2]),
            _scratch: Ptr<u8>,
        ) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn products_in_step_are_divided_alike() {
        let (isa, k, n) = (Isa::detect(), 64, 384);
        let elements = vec![0f32; k * n];
        let b = View::from_slice_sized(&elements, &[k as i64, n as i64]).expect("fits");
        let packed = PackedMatrix::on(isa, &b).expect("packs");
        let right = Right::Packed(packed.panels::<f32>().expect("is of this class"));
        for m in [1, 16, 200, 1_000] {
            let a = Mat::row_major(Ptr(std::ptr::dangling_mut()), k);
            let gate = Blocks::new(isa, [m, n, k], a, right, output::<f32>(None, n));
            let visited = Some(VisitedParts::new(&Nothing, true));
            let value = Blocks { visited, ..gate };
            let work = 2 * gate.work();
            let splits = splits_in_step(&[gate, value], 2, work).expect("are alike");
            let expected = value.split(2, work);
            assert!(splits.iter().all(|s| (s.rows, s.panels) == (expected.rows, expected.panels)));
            let narrow = Blocks { sizes: [m, n / 2, k], ..gate };
            assert!(splits_in_step(&[narrow, value], 2, work).is_none());
        }
    }
}
