//! The bits of convolutions, attention and reductions depend on neither strides nor the number of
//! rows. Those of products are tested in `gemm`, threads and instruction sets in
//! `thread_pool::tests`.

use super::{view, view_mut, window};
use crate::{Attention, Element, ReduceOp, View, ViewMut, attention, conv, conv_transpose, reduce};

/// `n` deterministic numbers between -1 and 1 with all digits in use.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f32 / (1u64 << 30) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The elements of a row-major tensor in memory of another layout: dimensions in the given order,
/// outermost first, and `gap` times as far apart.
struct Laid {
    memory: Vec<f32>,
    sizes: Vec<i64>,
    strides: Vec<i64>,
}

impl Laid {
    fn new(x: &[f32], sizes: &[i64], order: &[usize], gap: i64) -> Laid {
        let (mut strides, mut stride) = (vec![0; sizes.len()], gap);
        for &d in order.iter().rev() {
            strides[d] = stride;
            stride *= sizes[d];
        }
        let mut memory = vec![f32::NAN; stride as usize];
        for (i, x) in x.iter().enumerate() {
            memory[Self::offset(i, sizes, &strides)] = *x;
        }
        Laid { memory, sizes: sizes.to_vec(), strides }
    }

    fn offset(mut index: usize, sizes: &[i64], strides: &[i64]) -> usize {
        let mut at = 0;
        for (size, stride) in sizes.iter().zip(strides).rev() {
            at += index % *size as usize * *stride as usize;
            index /= *size as usize;
        }
        at
    }

    fn view(&self) -> View<'_> {
        // SAFETY: `new` made the memory for these sizes and strides.
        unsafe {
            View::from_raw(self.memory.as_ptr().cast(), f32::DTYPE, &self.sizes, &self.strides)
        }
    }

    fn view_mut(&mut self) -> ViewMut<'_> {
        let start = self.memory.as_mut_ptr().cast();
        // SAFETY: as above; no two elements have one address.
        unsafe { ViewMut::from_raw(start, f32::DTYPE, &self.sizes, &self.strides) }
    }

    /// The elements in row-major order.
    fn elements(&self) -> Vec<f32> {
        let n = self.sizes.iter().product::<i64>() as usize;
        (0..n).map(|i| self.memory[Self::offset(i, &self.sizes, &self.strides)]).collect()
    }
}

#[test]
fn attention_has_the_same_bits_in_any_layout() {
    let (b, n, l, e, d) = (3, 37, 530, 24, 20);
    let shapes: [&[i64]; 3] = [&[b, n, e], &[b, l, e], &[b, l, d]];
    let data: Vec<Vec<f32>> = (1..)
        .zip(shapes)
        .map(|(seed, s)| numbers(s.iter().product::<i64>() as usize, seed))
        .collect();
    let sizes = [b, n, d];
    for causal in [false, true] {
        let mut expected = vec![0f32; (b * n * d) as usize];
        let options = || Attention { scale: 0.3, causal, ..Attention::default() };
        let [q, k, v] = [0, 1, 2].map(|i| view(&data[i], shapes[i]));
        attention(&q, &k, &v, options(), &mut view_mut(&mut expected, &sizes)).expect("attends");
        for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 1, 0]] {
            for gap in [1, 3] {
                let [q, k, v] = [0, 1, 2].map(|i| Laid::new(&data[i], shapes[i], &order, gap));
                let mut out = Laid::new(&expected, &sizes, &order, gap);
                out.memory.fill(7.0);
                attention(&q.view(), &k.view(), &v.view(), options(), &mut out.view_mut())
                    .expect("attends");
                assert_eq!(bits(&out.elements()), bits(&expected), "{causal} {order:?} {gap}");
            }
        }
    }
}

#[test]
fn attention_has_the_same_bits_for_any_number_of_queries() {
    let (n, l, e, d) = (300usize, 300, 16, 24);
    let (q, k, v) = (numbers(n * e, 1), numbers(l * e, 2), numbers(l * d, 3));
    for causal in [false, true] {
        let of = |rows: usize| {
            let mut out = vec![0f32; rows * d];
            attention(
                &view(&q[..rows * e], &[rows as i64, e as i64]),
                &view(&k, &[l as i64, e as i64]),
                &view(&v, &[l as i64, d as i64]),
                Attention { scale: 1.5, causal, ..Attention::default() },
                &mut view_mut(&mut out, &[rows as i64, d as i64]),
            )
            .expect("attends");
            bits(&out)
        };
        let all = of(n);
        for rows in [1, 2, 15, 16, 17, 64, 129, 299] {
            assert_eq!(of(rows), all[..rows * d], "{causal}, {rows} queries");
        }
    }
}

#[test]
fn convolutions_have_the_same_bits_in_any_layout() {
    let w = window(&[3, 3], 2, 1, 1);
    let (xs, ws, ys) = ([2, 12, 17, 19], [10, 6, 3, 3], [2, 10, 9, 10]);
    let (x, weight, bias) = (numbers(2 * 12 * 17 * 19, 4), numbers(10 * 6 * 9, 5), numbers(10, 6));
    let mut expected = vec![0f32; 2 * 10 * 9 * 10];
    let bias = Some(View::from_slice(&bias));
    let (from, by) = (view(&x, &xs), view(&weight, &ws));
    conv(&from, &by, bias.as_ref(), &w, 2, &mut view_mut(&mut expected, &ys)).expect("convolves");
    // the transposed convolution, from a gradient of the result back to the input's sizes
    let mut back = vec![0f32; x.len()];
    let from = view(&expected, &ys);
    conv_transpose(&from, &by, None, &w, 2, &mut view_mut(&mut back, &xs)).expect("convolves");
    for order in [[0, 1, 2, 3], [0, 2, 3, 1], [3, 2, 1, 0]] {
        for gap in [1, 2] {
            let (from, by) =
                (Laid::new(&x, &xs, &order, gap), Laid::new(&weight, &ws, &order, gap));
            let mut out = Laid::new(&expected, &ys, &order, gap);
            out.memory.fill(7.0);
            conv(&from.view(), &by.view(), bias.as_ref(), &w, 2, &mut out.view_mut())
                .expect("convolves");
            assert_eq!(bits(&out.elements()), bits(&expected), "{order:?} {gap}");
            let mut to = Laid::new(&back, &xs, &order, gap);
            to.memory.fill(7.0);
            conv_transpose(&out.view(), &by.view(), None, &w, 2, &mut to.view_mut())
                .expect("convolves");
            assert_eq!(bits(&to.elements()), bits(&back), "{order:?} {gap} transposed");
        }
    }
}

#[test]
fn convolutions_have_the_same_bits_for_any_number_of_images_and_channels() {
    // The shorter sums of few channels are computed without a product.
    for (kernel, padding, inputs) in [(1, 0, 70), (3, 1, 70), (3, 1, 20)] {
        let w = window(&[kernel, kernel], 1, padding, 1);
        let taps = (kernel * kernel) as usize;
        let (x, weight) = (numbers(9 * inputs * 100, 7), numbers(50 * inputs * taps, 8));
        let of = |images: usize, channels: usize| {
            let mut out = vec![0f32; images * channels * 100];
            conv(
                &view(&x[..images * inputs * 100], &[images as i64, inputs as i64, 10, 10]),
                &view(
                    &weight[..channels * inputs * taps],
                    &[channels as i64, inputs as i64, kernel, kernel],
                ),
                None,
                &w,
                1,
                &mut view_mut(&mut out, &[images as i64, channels as i64, 10, 10]),
            )
            .expect("convolves");
            bits(&out)
        };
        let all = of(9, 50);
        for (images, channels) in [(1, 50), (2, 1), (9, 3), (4, 4), (3, 17)] {
            let found = of(images, channels);
            for (image, found) in found.chunks(channels * 100).enumerate() {
                let expected = &all[image * 50 * 100..][..channels * 100];
                assert_eq!(found, expected, "{kernel}: {channels} channels of image {image}");
            }
        }
    }
}

#[test]
fn sums_have_the_same_bits_in_any_layout() {
    let sizes = [7, 45, 150];
    let x = numbers(7 * 45 * 150, 9);
    for dims in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]] {
        let kept: Vec<i64> = (0..3).filter(|d| !dims.contains(d)).map(|d| sizes[d]).collect();
        let sum = |x: &View<'_>| {
            let mut out = vec![0f32; kept.iter().product::<i64>() as usize];
            reduce(ReduceOp::Sum, x, dims, &mut view_mut(&mut out, &kept)).expect("sums");
            bits(&out)
        };
        let expected = sum(&view(&x, &sizes));
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for gap in [1, 3] {
                let laid = Laid::new(&x, &sizes, &order, gap);
                assert_eq!(sum(&laid.view()), expected, "{dims:?} {order:?} {gap}");
            }
        }
    }
}

#[test]
fn a_sum_alone_has_the_bits_of_the_sum_of_a_row() {
    for (rows, columns) in [(40, 37), (40, 700), (5, 70_000)] {
        let x = numbers(rows * columns, 10);
        let of = |x: &[f32], rows: usize| {
            let mut out = vec![0f32; rows];
            let x = view(x, &[rows as i64, columns as i64]);
            reduce(ReduceOp::Sum, &x, &[1], &mut view_mut(&mut out, &[rows as i64])).expect("sums");
            bits(&out)
        };
        let all = of(&x, rows);
        for row in [0, 1, rows - 1] {
            assert_eq!(of(&x[row * columns..][..columns], 1), all[row..=row], "row {row}");
        }
        assert_eq!(of(&x[..3 * columns], 3), all[..3], "{rows}x{columns}");
    }
}
