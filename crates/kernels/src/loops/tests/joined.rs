//! Products of one left factor as one job: the bits are those of the products alone.

use super::planned::planned;
use super::{Layout, LoopKernel, Tensor, agrees, floats, noise, sets};
use crate::gemm::{JoinedProduct, RightFactor, joined_products, visited_product};
use crate::loops::product::Pace;
use crate::thread_pool::with_num_threads;
use crate::{Isa, PackedMatrix, View};
use maquette_ir::loops::{Array, LoopNest, StageOutput};
use maquette_ir::{DType, Scalar};
use std::ops::Range;

/// Three products of `a0` with a bias each, the last of other columns.
const BIASED: &str = "
loops (a0: FLOAT[M, K], a1: FLOAT[K, N], a2: FLOAT[K, N], a3: FLOAT[P, K], a4: FLOAT[N]) \
-> (t1, t3, t4)
  axes i0 < M, i1 < N, i2 < K, i3 < P
{
  t0[i0, i1] = contract over [i0, i1, i2] {
    r0: FLOAT = load a0[i0, i2]
    r1: FLOAT = load a1[i2, i1]
    return r0, r1
  }
  t1[i0, i1] = map {
    r0: FLOAT = load t0[i0, i1]
    r1: FLOAT = load a4[i1]
    r2: FLOAT = add r0, r1
    return r2
  }
  t2[i0, i1] = contract over [i0, i1, i2] {
    r0: FLOAT = load a0[i0, i2]
    r1: FLOAT = load a2[i2, i1]
    return r0, r1
  }
  t3[i0, i1] = map {
    r0: FLOAT = load t2[i0, i1]
    r1: FLOAT = tanh r0
    return r1
  }
  t4[i0, i3] = contract over [i0, i3, i2] {
    r0: FLOAT = load a0[i0, i2]
    r1: FLOAT = load a3[i3, i2]
    return r0, r1
  }
}
";

/// Two products of `a0`, the first of which the map of the second reads at LOADED.
const GATED: &str = "
loops (a0: FLOAT[M, K], a1: FLOAT[K, N], a2: FLOAT[K, N]) -> (t2)
  axes i0 < M, i1 < N, i2 < K
{
  t0[i0, i1] = contract over [i0, i1, i2] {
    r0: FLOAT = load a0[i0, i2]
    r1: FLOAT = load a1[i2, i1]
    return r0, r1
  }
  t1[i0, i1] = contract over [i0, i1, i2] {
    r0: FLOAT = load a0[i0, i2]
    r1: FLOAT = load a2[i2, i1]
    return r0, r1
  }
  t2[i0, i1] = map {
    r0: FLOAT = load t0[LOADED]
    r1: FLOAT = load t1[i0, i1]
    r2: FLOAT = sigmoid r0
    r3: FLOAT = mul r2, r1
    return r3
  }
}
";

/// Two products, of which the second has another left factor: OTHER at [i0, i2].
const APART: &str = "
loops (a0: FLOAT[M, K], a1: FLOAT[K, N], a2: FLOAT[K, N], a3: FLOAT[M, K]) -> (t0, t1)
  axes i0 < M, i1 < N, i2 < K
{
  t0[i0, i1] = contract over [i0, i1, i2] {
    r0: FLOAT = load a0[i0, i2]
    r1: FLOAT = load a1[i2, i1]
    return r0, r1
  }
  t1[i0, i1] = contract over [i0, i1, i2] {
    r0: FLOAT = load a3[i0, i2]
    r1: FLOAT = load a2[i2, i1]
    return r0, r1
  }
}
";

/// The sizes M, N, K and P.
type Sizes = [i64; 4];

fn parse(text: &str, dtype: DType, [m, n, k, p]: Sizes) -> LoopNest {
    let text = text.replace("FLOAT", dtype.name()).replace("LOADED", "i0, i1");
    let named = [("M", m), ("N", n), ("K", k), ("P", p)];
    let text = named.iter().fold(text, |text, (name, size)| {
        let text = text.replace(&format!("[{name}"), &format!("[{size}"));
        let text = text.replace(&format!(", {name}]"), &format!(", {size}]"));
        text.replace(&format!("< {name}"), &format!("< {size}"))
    });
    LoopNest::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Operands of a nest.
fn operands(nest: &LoopNest, dtype: DType) -> Vec<Array> {
    let operand = |(at, sizes): (usize, Vec<i64>)| {
        let numel = sizes.iter().product::<i64>() as usize;
        let elements = noise(numel + at).skip(at).map(Scalar::Float);
        Array::new(dtype, &sizes, elements).expect("fits")
    };
    let sizes = nest.operands().iter().map(|o| o.sizes.iter().filter_map(|e| e.as_i64()).collect());
    sizes.enumerate().map(operand).collect()
}

/// The phases of a nest that run together.
fn runs(nest: &LoopNest, operands: &[Array]) -> Vec<(Range<usize>, Pace)> {
    let operands: Vec<Tensor> = operands.iter().map(|a| Tensor::of(a, Layout::RowMajor)).collect();
    let views: Vec<View<'_>> = operands.iter().map(Tensor::view).collect();
    let result = |r: &StageOutput| {
        let sizes = nest.sizes(r.stage).expect("is a stage");
        let sizes: Vec<i64> = sizes.iter().filter_map(|e| e.as_i64()).collect();
        Tensor::new(nest.dtype(*r).expect("is an output"), &sizes, Layout::RowMajor)
    };
    let mut results: Vec<Tensor> = nest.results().iter().map(result).collect();
    let outputs: Vec<_> = results.iter_mut().map(Tensor::view_mut).collect();
    let kernel = LoopKernel::new(nest.clone());
    kernel.plan(&|_| None, &views, &outputs).expect("fits").runs().to_vec()
}

/// Sizes across the borders of tiles, and such as are divided among threads.
const SIZES: [Sizes; 7] = [
    [1, 384, 384, 48],
    [2, 260, 300, 130],
    [16, 47, 600, 130],
    [17, 130, 130, 47],
    [130, 48, 70, 48],
    [400, 33, 33, 1],
    [3, 5, 4, 7],
];

#[test]
fn products_of_one_factor_agree_with_the_reference() {
    for (dtype, sizes) in SIZES.iter().flat_map(|s| [(DType::F32, *s), (DType::F64, *s)]) {
        for (text, pace) in [(BIASED, Pace::Free), (GATED, Pace::InStep)] {
            let nest = parse(text, dtype, sizes);
            let operands = operands(&nest, dtype);
            let found = runs(&nest, &operands);
            assert!(matches!(&found[..], [(_, found)] if *found == pace), "{found:?}");
            for threads in [1, 2, 3] {
                assert_eq!(with_num_threads(threads, || agrees(&nest, &operands, &[])), None);
                with_num_threads(threads, || planned(&nest, &operands, &mut Vec::new()));
            }
        }
    }
}

#[test]
fn products_of_other_factors_run_apart() {
    let nest = parse(APART, DType::F32, [16, 64, 64, 1]);
    let found = runs(&nest, &operands(&nest, DType::F32));
    assert_eq!(found, [(0..1, Pace::Free), (1..2, Pace::Free)]);
    // The map reads the first product at other places than its own.
    let text = GATED.replace("LOADED", "i1, i0");
    let nest = parse(&text, DType::F32, [48, 48, 64, 1]);
    assert_eq!(runs(&nest, &operands(&nest, DType::F32)).len(), 2);
}

/// Products on `threads` threads, joined or alone.
fn products(
    isa: Isa,
    (a, bs): (&View<'_>, &[(Tensor, Option<PackedMatrix>)]),
    threads: usize,
    is_joined: bool,
) -> Vec<Vec<u64>> {
    let (m, k) = (a.sizes()[0], a.sizes()[1]);
    let sizes = |b: &Tensor| [m as usize, b.sizes[1] as usize, k as usize];
    let outs = bs.iter().map(|(b, _)| Tensor::new(DType::F32, &[m, b.sizes[1]], Layout::RowMajor));
    let mut outs: Vec<Tensor> = outs.collect();
    let views: Vec<View<'_>> = bs.iter().map(|(b, _)| b.view()).collect();
    let of = |i: usize| RightFactor::of(&views[i], bs[i].1.as_ref());
    // SAFETY: the sizes fit each other.
    unsafe {
        if is_joined {
            let parts = outs.iter_mut().enumerate().map(|(i, out)| JoinedProduct {
                right: of(i),
                columns: sizes(&bs[i].0)[1],
                out: Some(out.view_mut()),
                visitor: None,
            });
            let mut parts: Vec<JoinedProduct<'_>> = parts.collect();
            let size = [m as usize, k as usize];
            joined_products::<f32>(isa, threads, (a, size), &mut parts, false).expect("has memory");
        } else {
            for (i, out) in outs.iter_mut().enumerate() {
                let (mut out, of_b) = (out.view_mut(), sizes(&bs[i].0));
                visited_product::<f32>(isa, threads, (a, of(i)), of_b, Some(&mut out), None)
                    .expect("has memory");
            }
        }
    }
    outs.iter().map(Tensor::bits).collect()
}

#[test]
fn joined_products_have_the_bits_of_products_alone() {
    for (m, k) in [(1, 384), (2, 700), (16, 384), (17, 130), (130, 64), (500, 40)] {
        let a = Tensor::of(&floats(&[m, k], noise((m * k) as usize)), Layout::RowMajor);
        let reversed = Tensor::of(&floats(&[m, k], noise((m * k) as usize)), Layout::Reversed);
        for isa in sets() {
            let factor = |(i, n): (usize, i64)| {
                let layout = if i == 1 { Layout::Reversed } else { Layout::RowMajor };
                let b = Tensor::of(&floats(&[k, n], noise((k * n) as usize + i).skip(i)), layout);
                let packed = (i != 2).then(|| PackedMatrix::on(isa, &b.view()).expect("packs"));
                (b, packed)
            };
            let bs: Vec<_> = [384, 48, 47, 130].into_iter().enumerate().map(factor).collect();
            let expected = products(isa, (&a.view(), &bs), 1, false);
            for (threads, a) in [1, 2, 3, 7].into_iter().flat_map(|t| [(t, &a), (t, &reversed)]) {
                assert_eq!(products(isa, (&a.view(), &bs), threads, true), expected, "{m} {k}");
            }
        }
    }
}
