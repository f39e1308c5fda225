//! Convolutions with what follows them: maps on finished parts, packed weights.

use super::planned::{planned, planned_in};
use super::{Layout, agrees, agrees_in, floats, noise};
use maquette_ir::loops::{Array, LoopNest};
use maquette_ir::{DType, Scalar};

/// A convolution along two dimensions, whose stages are named as in a nest of the operator.
#[derive(Clone, Copy, Debug)]
struct Case {
    images: i64,
    /// The channels of the input and of the output.
    channels: [i64; 2],
    /// Whether each channel of the output has one of the input. Their numbers are equal.
    is_depthwise: bool,
    size: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
    /// The positions beyond those of windows that fit.
    extra: i64,
}

const CASE: Case = Case {
    images: 2,
    channels: [5, 37],
    is_depthwise: false,
    size: 9,
    kernel: 3,
    stride: 1,
    padding: 1,
    dilation: 1,
    extra: 0,
};

const DEPTHWISE: Case = Case { channels: [37, 37], size: 14, is_depthwise: true, ..CASE };

/// What follows: bias, scale and shift of each channel as batch norm has them, a residual, ReLU;
/// and a clamp or SiLU of that.
const MAPS: &str = "
  t1[i0, i1, i2, i3] = map {
    r0: f32 = load t0[i0, i1, i2, i3]
    r1: f32 = load a2[i1]
    r2: f32 = add r0, r1
    return r2
  }
  t2[i0, i1, i2, i3] = map {
    r0: f32 = load t1[i0, i1, i2, i3]
    r1: f32 = load a3[i1]
    r2: f32 = mul r0, r1
    r3: f32 = load a4[i1]
    r4: f32 = add r2, r3
    return r4
  }
  t3[i0, i1, i2, i3] = map {
    r0: f32 = load t2[i0, i1, i2, i3]
    r1: f32 = load a5[i0, i1, i2, i3]
    r2: f32 = add r0, r1
    r3: f32 = const 0.0
    r4: f32 = max r2, r3
    return r4
  }
  t4[i0, i1, i2, i3] = map {
    r0: f32 = load t3[i0, i1, i2, i3]
    r1: f32 = const 6.0
    r2: f32 = min r0, r1
    return r2
  }
  t5[i0, i1, i2, i3] = map {
    r0: f32 = load t2[i0, i1, i2, i3]
    r1: f32 = neg r0
    r2: f32 = exp r1
    r3: f32 = const 1.0
    r4: f32 = add r2, r3
    r5: f32 = div r0, r4
    return r5
  }
";

/// What follows in one loop over vectors of channels: scale and shift, a residual, a clamp.
const AFFINE: &str = "
  t1[i0, i1, i2, i3] = map {
    r0: f32 = load t0[i0, i1, i2, i3]
    r1: f32 = load a2[i1]
    r2: f32 = mul r0, r1
    r3: f32 = load a3[i1]
    r4: f32 = add r2, r3
    return r4
  }
  t2[i0, i1, i2, i3] = map {
    r0: f32 = load t1[i0, i1, i2, i3]
    r1: f32 = load a5[i0, i1, i2, i3]
    r2: f32 = add r0, r1
    return r2
  }
  t3[i0, i1, i2, i3] = map {
    r0: f32 = load t2[i0, i1, i2, i3]
    r1: f32 = const 0.0
    r2: f32 = max r0, r1
    r3: f32 = const 6.0
    r4: f32 = min r2, r3
    return r4
  }
";

/// Parts of [`AFFINE`]: without the residual, and a shift and a lower bound alone.
const CLAMPED: &str = "
  t1[i0, i1, i2, i3] = map {
    r0: f32 = load t0[i0, i1, i2, i3]
    r1: f32 = load a2[i1]
    r2: f32 = mul r0, r1
    r3: f32 = load a3[i1]
    r4: f32 = add r2, r3
    r5: f32 = const -1.5
    r6: f32 = max r4, r5
    r7: f32 = const 1.25
    r8: f32 = min r6, r7
    return r8
  }
";
const SHIFTED: &str = "
  t1[i0, i1, i2, i3] = map {
    r0: f32 = load t0[i0, i1, i2, i3]
    r1: f32 = load a3[i1]
    r2: f32 = add r0, r1
    r3: f32 = const 0.0
    r4: f32 = max r2, r3
    return r4
  }
";

/// The maps that one chain computes.
fn chained_maps() -> &'static str {
    MAPS.split_once("  t5").map_or(MAPS, |(maps, _)| maps)
}

impl Case {
    /// The size of the output.
    fn output(&self) -> i64 {
        let reach = self.dilation * (self.kernel - 1) + 1;
        (self.size + 2 * self.padding - reach) / self.stride + 1 + self.extra
    }

    /// The nest with these results.
    fn nest(&self, results: &str, maps: &str) -> LoopNest {
        let Case { images, channels: [ci, co], size, kernel, stride, padding, dilation, .. } =
            *self;
        let o = self.output();
        let (within, channel, along, of_weight) = match self.is_depthwise {
            true => (1, "i1", "i5, i6", "i1, 0, i5, i6"),
            false => (ci, "i4", "i4, i5, i6", "i1, i4, i5, i6"),
        };
        let text = format!(
            "
loops (a0: f32[{images}, {ci}, {size}, {size}], a1: f32[{co}, {within}, {kernel}, {kernel}], \
             a2: f32[{co}], a3: f32[{co}], a4: f32[{co}], a5: f32[{images}, {co}, {o}, {o}]) -> \
             ({results})
  axes i0 < {images}, i1 < {co}, i2 < {o}, i3 < {o}, i4 < {ci}, i5 < {kernel}, i6 < {kernel}
{{
  t0[i0, i1, i2, i3] = contract over [i0, i1, i2, i3, {along}] {{
    r0: f32 = load a1[{of_weight}]
    r1: i64 = const {stride}
    r2: i64 = const {padding}
    r3: i64 = const {dilation}
    r4: i64 = coord i2
    r5: i64 = coord i5
    r6: i64 = mul r5, r3
    r7: i64 = mul r4, r1
    r8: i64 = add r7, r6
    r9: i64 = sub r8, r2
    r10: i64 = coord i3
    r11: i64 = coord i6
    r12: i64 = mul r11, r3
    r13: i64 = mul r10, r1
    r14: i64 = add r13, r12
    r15: i64 = sub r14, r2
    r16: f32 = const 0.0
    r17: f32 = read a0[i0, {channel}, r9, r15] else r16
    return r0, r17
  }}{maps}}}
"
        );
        LoopNest::parse(&text).expect("is valid")
    }

    /// The operands, of numbers that look random.
    fn operands(&self) -> Vec<Array> {
        let Case { images, channels: [ci, co], size, kernel, .. } = *self;
        let (o, within) = (self.output(), if self.is_depthwise { 1 } else { ci });
        let of = |sizes: &[i64]| floats(sizes, noise(sizes.iter().product::<i64>() as usize));
        vec![
            of(&[images, ci, size, size]),
            of(&[co, within, kernel, kernel]),
            of(&[co]),
            of(&[co]),
            of(&[co]),
            of(&[images, co, o, o]),
        ]
    }

    /// The same nest, of `f64`.
    fn double(&self, results: &str, maps: &str) -> LoopNest {
        let text = self.nest(results, maps).to_string().replace("f32", "f64");
        LoopNest::parse(&text).expect("is valid")
    }

    /// The operands with zeros of both signs, infinities and NaN among them.
    fn special_operands(&self, dtype: DType) -> Vec<Array> {
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0];
        let of = |(k, array): (usize, Array)| {
            let element = |(i, x): (usize, &Scalar)| match (i * 7 + k * 3) % 97 {
                n @ 0..5 => Scalar::Float(special[n]),
                _ => *x,
            };
            let elements = array.elements().iter().enumerate().map(element);
            Array::new(dtype, array.sizes(), elements).expect("fits")
        };
        self.operands().into_iter().enumerate().map(of).collect()
    }

    /// Compares with the reference; returns what the plan does.
    fn holds(&self, results: &str, maps: &str) -> Vec<&'static str> {
        let (nest, operands) = (self.nest(results, maps), self.operands());
        assert_eq!(agrees(&nest, &operands, &[]), None, "{self:?}");
        let mut used = Vec::new();
        planned(&nest, &operands, &mut used);
        used
    }
}

/// The layouts of the operands, and of the results, where the channels of the input, of the
/// residual or of the results are last.
fn layouts(x: Layout, residual: Layout, results: Layout) -> (Vec<Layout>, Layout) {
    let rows = Layout::RowMajor;
    (vec![x, rows, rows, rows, rows, residual], results)
}

/// Convolutions of several kinds.
fn cases() -> Vec<Case> {
    vec![
        CASE,
        Case { stride: 2, ..CASE },
        Case { size: 13, stride: 3, padding: 4, dilation: 2, kernel: 4, ..CASE },
        // many products of one sum
        Case { channels: [61, 70], images: 1, size: 4, ..CASE },
        // one element
        Case { kernel: 1, padding: 0, ..CASE },
        Case { kernel: 1, padding: 0, stride: 2, ..CASE },
        Case { kernel: 1, padding: 1, ..CASE },
        // the numbers are those of no window
        Case { stride: 1, padding: -1, ..CASE },
        Case { extra: 3, ..CASE },
        Case { extra: -2, stride: 2, ..CASE },
        Case { kernel: 1, padding: 0, extra: 2, ..CASE },
        Case { size: 5, images: 1, channels: [2, 3], ..CASE },
        DEPTHWISE,
        Case { stride: 2, ..DEPTHWISE },
        Case { size: 31, stride: 2, channels: [7, 7], ..DEPTHWISE },
        Case { size: 75, channels: [3, 3], dilation: 2, ..DEPTHWISE },
        Case { size: 97, images: 1, channels: [2, 2], ..DEPTHWISE },
        Case { size: 3, padding: 0, ..DEPTHWISE },
        Case { size: 13, kernel: 5, padding: 2, ..DEPTHWISE },
        Case { kernel: 1, padding: 0, ..DEPTHWISE },
        Case { stride: 3, kernel: 2, ..DEPTHWISE },
        Case { padding: -1, ..DEPTHWISE },
        Case { extra: 3, ..DEPTHWISE },
        // sums of several segments
        Case { kernel: 23, size: 24, padding: 0, images: 1, channels: [3, 3], ..DEPTHWISE },
    ]
}

#[test]
fn maps_follow_convolutions_on_finished_parts() {
    for case in cases() {
        for results in ["t4", "t5", "t0, t4", "t1, t3, t5"] {
            let used = case.holds(results, MAPS);
            assert!(used.contains(&"several on rectangles"), "{case:?}");
            assert!(!used.contains(&"later phase"), "{case:?}");
        }
    }
}

#[test]
fn maps_that_are_a_chain_run_on_lines() {
    let cases = [
        CASE,
        Case { images: 1, size: 31, channels: [3, 20], stride: 2, ..CASE },
        Case { kernel: 1, padding: 0, ..CASE },
        Case { kernel: 1, padding: 0, images: 1, size: 29, channels: [6, 40], ..CASE },
        DEPTHWISE,
        Case { size: 7, stride: 2, ..DEPTHWISE },
    ];
    for case in cases {
        assert!(case.holds("t4", chained_maps()).contains(&"chain"), "{case:?}");
        // The sums are a result, too.
        assert!(case.holds("t0, t4", chained_maps()).contains(&"chain"), "{case:?}");
        // A value between two maps is another result.
        assert!(!case.holds("t2, t4", chained_maps()).contains(&"chain"), "{case:?}");
        assert!(!case.holds("t5", MAPS).contains(&"chain"), "{case:?}");
    }
}

#[test]
fn planes_are_read_where_they_are() {
    for (size, stride, padding) in (1..40).flat_map(|size| {
        [(1, 0), (1, 1), (1, 2), (1, 5), (2, 0), (2, 1), (2, 3)].map(|(s, p)| (size, s, p))
    }) {
        let case = Case { size, stride, padding, images: 2, channels: [3, 3], ..DEPTHWISE };
        if case.output() > 0 && size + 2 * padding >= 3 {
            case.holds("t4", chained_maps());
        }
    }
}

#[test]
fn weights_of_convolutions_are_packed_once() {
    for case in [
        Case { channels: [40, 70], images: 1, ..CASE },
        Case { channels: [13, 64], stride: 2, padding: 3, dilation: 2, ..CASE },
        // windows of one element, of which threads share rows, panels, or both
        Case { kernel: 1, padding: 0, channels: [40, 13], images: 1, size: 28, ..CASE },
        Case { kernel: 1, padding: 0, channels: [26, 70], images: 1, size: 27, ..CASE },
        Case { kernel: 1, padding: 0, channels: [26, 70], images: 1, size: 14, ..CASE },
        Case { kernel: 1, padding: 0, channels: [26, 40], images: 1, size: 56, ..CASE },
    ] {
        assert!(case.holds("t4", MAPS).contains(&"packed"), "{case:?}");
        assert!(case.holds("t0, t5", MAPS).contains(&"packed"), "{case:?}");
    }
    // Short sums read them where they are.
    for stride in [1, 2] {
        let channels = [16, 40];
        let case = Case { kernel: 1, padding: 0, channels, images: 1, size: 29, stride, ..CASE };
        assert!(!case.holds("t4", MAPS).contains(&"packed"), "{case:?}");
    }
}

#[test]
fn channels_are_planes_or_last() {
    let (planes, last) = (Layout::RowMajor, Layout::ChannelsLast(0));
    // A part of a concatenation of channels.
    let part = Layout::ChannelsLast(3);
    let layouts = [
        layouts(last, last, last),
        layouts(part, last, part),
        layouts(last, planes, planes),
        layouts(planes, last, last),
        layouts(planes, planes, last),
    ];
    let more = [
        Case { channels: [64, 16], images: 1, ..CASE },
        // a panel of one channel
        Case { channels: [5, 33], images: 1, ..CASE },
        Case { channels: [5, 1], images: 1, ..CASE },
        Case { channels: [3, 20], size: 31, stride: 2, images: 1, ..CASE },
        // windows of one element, with and without a stride
        Case { kernel: 1, padding: 0, channels: [26, 24], images: 1, size: 28, ..CASE },
        Case { kernel: 1, padding: 0, channels: [26, 24], size: 15, stride: 2, ..CASE },
        Case { channels: [40, 40], size: 29, images: 1, ..DEPTHWISE },
        // more channels than a rectangle has
        Case { channels: [600, 600], size: 5, images: 1, ..DEPTHWISE },
        Case { channels: [17, 17], size: 9, stride: 2, padding: 2, dilation: 2, ..DEPTHWISE },
    ];
    for case in cases().into_iter().chain(more) {
        for results in ["t0", "t4", "t5", "t0, t4"] {
            let (nest, operands) = (case.nest(results, MAPS), case.operands());
            assert_eq!(agrees_in(&nest, &[], &operands, &[], &layouts), None, "{case:?}");
            for layouts in &layouts {
                planned_in(&nest, &operands, layouts, &mut Vec::new());
            }
        }
    }
}

#[test]
fn scales_residuals_and_clamps_of_channels_are_one_loop() {
    let last = Layout::ChannelsLast(0);
    let layouts = [
        layouts(last, last, last),
        layouts(Layout::RowMajor, last, Layout::ChannelsLast(3)),
        layouts(last, Layout::ChannelsLast(5), last),
    ];
    let cases = [
        Case { images: 1, ..CASE },
        Case { channels: [5, 33], ..CASE },
        Case { kernel: 1, padding: 0, channels: [20, 40], images: 1, size: 13, ..CASE },
        Case { images: 1, ..DEPTHWISE },
        Case { size: 9, stride: 2, channels: [16, 16], ..DEPTHWISE },
    ];
    for case in cases {
        for (result, maps) in [("t3", AFFINE), ("t1", CLAMPED), ("t1", SHIFTED)] {
            for nest in [case.nest(result, maps), case.double(result, maps)] {
                let is_double = nest.to_string().contains("f64");
                let dtype = if is_double { DType::F64 } else { DType::F32 };
                let operands = case.special_operands(dtype);
                assert_eq!(agrees_in(&nest, &[], &operands, &[], &layouts), None, "{case:?}");
                for layouts in &layouts {
                    let mut used = Vec::new();
                    planned_in(&nest, &operands, layouts, &mut used);
                    assert!(used.contains(&"chain"), "{case:?}: {used:?}");
                }
            }
        }
    }
}

#[test]
fn maps_of_pixels_are_a_chain_along_channels() {
    let last = Layout::ChannelsLast(0);
    let layouts = layouts(last, last, last);
    for case in [
        CASE,
        Case { kernel: 1, padding: 0, channels: [20, 70], images: 1, size: 29, ..CASE },
        Case { size: 17, ..DEPTHWISE },
        Case { size: 7, channels: [600, 600], images: 1, ..DEPTHWISE },
    ] {
        let mut used = Vec::new();
        planned_in(&case.nest("t4", chained_maps()), &case.operands(), &layouts, &mut used);
        assert!(used.contains(&"chain") && used.contains(&"packed"), "{case:?}: {used:?}");
    }
}
