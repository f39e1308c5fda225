//! Products of pixels beside those of patch matrices.

use super::{Form, MIN_PIXELS, PlaneWindow};
use crate::conv::pixels::Pixels;
use crate::gemm::{Float, Product};
use crate::isa::Isa;
use crate::view::{Ptr, View, ViewMut};
use crate::window::Window;
use proptest::prelude::*;

/// A convolution of any sizes.
#[derive(Clone, Debug)]
struct Case {
    images: i64,
    channels: [i64; 2],
    plane: [i64; 2],
    window: Window,
}

fn cases() -> impl Strategy<Value = Case> {
    let two = |of: std::ops::Range<i64>| prop::collection::vec(of, 2);
    let window = (two(1..5), two(1..4), two(0..4), two(1..4));
    (1i64..3, [1i64..70, 1i64..70], two(1..20), window).prop_filter_map(
        "some outputs, and few enough that they are products of patches",
        |(images, channels, plane, (kernel, stride, padding, dilation))| {
            let window = Window { kernel, stride, padding, dilation, ceil_mode: false };
            let plane = [plane[0], plane[1]];
            let output = [0, 1].map(|d| window.output_size(d, plane[d]));
            let pixels = images * output[0] * output[1];
            let is_fit = output.iter().all(|n| *n > 0) && pixels < MIN_PIXELS as i64;
            is_fit.then_some(Case { images, channels, plane, window })
        },
    )
}

/// Values whose sums are rounded.
fn values<F: Float>(n: i64) -> Vec<F> {
    (0..n).map(|i| F::cast(((i * 7919 + 13) % 8191) as f64 / 977.0 - 4.1)).collect()
}

fn check<F: Float + Product + std::fmt::Debug>(case: &Case, isa: Isa) {
    let Case { images, channels: [ci, co], plane: [height, width], ref window } = *case;
    let [rows, columns] = [0, 1].map(|d| window.output_size(d, case.plane[d]));
    let taps = window.kernel[0] * window.kernel[1];
    let (mut x, weight) = (values::<F>(images * ci * height * width), values::<F>(co * ci * taps));
    x[0] = F::cast(f64::NEG_INFINITY);
    let bias = values::<F>(co);
    let mut expected = values::<F>(images * co * rows * columns);
    let (x_sizes, weight_sizes) =
        ([images, ci, height, width], [co, ci, window.kernel[0], window.kernel[1]]);
    let sizes = [images, co, rows, columns];
    Form { w: window, groups: 1, transposed: false }
        .run(
            isa,
            &View::from_slice_sized(&x, &x_sizes).unwrap(),
            &View::from_slice_sized(&weight, &weight_sizes).unwrap(),
            Some(&View::from_slice(&bias)),
            &mut ViewMut::from_slice_sized(&mut expected, &sizes).unwrap(),
        )
        .expect("convolves");
    for threads in 1..4 {
        let mut found = values::<F>(images * co * rows * columns);
        let of = Pixels {
            isa,
            threads,
            window: PlaneWindow::new(
                [&[height, width], &[rows, columns], &window.kernel],
                [&window.stride, &window.padding, &window.dilation],
            )
            .expect("a window of a plane"),
            images: images as usize,
            channels: (ci as usize, co as usize),
            depth: (ci * taps) as usize,
            x: Ptr(x.as_mut_ptr()),
            weight: Ptr(weight.as_ptr().cast_mut()),
            bias: Some(&bias),
            y: Ptr(found.as_mut_ptr()),
            windows: (rows * columns) as usize,
        };
        // SAFETY: the operands have these sizes.
        unsafe { F::convolve(of) }.expect("small frames").expect("convolves");
        // The text of a number has all its bits, but for NaN.
        let is_same = format!("{found:?}") == format!("{expected:?}");
        assert!(is_same, "{case:?} on {isa:?} with {threads} threads");
    }
}

fn check_everywhere(case: &Case) {
    for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
        if crate::isa::available(isa) {
            check::<f32>(case, isa);
            check::<f64>(case, isa);
        }
    }
}

/// Threads share rows, panels, or both, and the last of each may be shorter.
#[test]
fn pixels_that_are_elements_have_the_bits_of_products() {
    let ones = vec![1, 1];
    let (stride, dilation, padding) = (ones.clone(), ones.clone(), vec![0, 0]);
    let window = Window { kernel: ones, stride, padding, dilation, ceil_mode: false };
    for (images, channels, plane) in [
        (1, [5, 40], [27, 27]),
        (1, [40, 5], [28, 30]),
        (1, [9, 70], [14, 14]),
        (1, [9, 70], [60, 56]),
        (2, [3, 65], [29, 27]),
        (1, [9, 33], [1, 900]),
        (1, [3, 33], [8, 260]),
        (1, [7, 3], [17, 1]),
    ] {
        check_everywhere(&Case { images, channels, plane, window: window.clone() });
    }
}

/// Tiles share the segments of a large panel of weights, and a sum may have several groups of them.
#[test]
fn large_panels_have_the_bits_of_products() {
    let [ones, threes] = [vec![1, 1], vec![3, 3]];
    let (stride, dilation, padding) = (ones.clone(), ones.clone(), ones);
    let window = Window { kernel: threes, stride, padding, dilation, ceil_mode: false };
    for (channels, plane) in [([400, 40], [5, 7]), ([710, 20], [4, 15]), ([3700, 9], [3, 4])] {
        check_everywhere(&Case { images: 1, channels, plane, window: window.clone() });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn pixels_have_the_bits_of_patches(case in cases()) {
        check_everywhere(&case);
    }
}
