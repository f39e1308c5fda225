//! Operators on images and volumes, where the recorded calls do not look. Numbers are PyTorch's.

use maquette_aten as _;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ir::{DType, Loc, MemoryFormat};
use maquette_ops::{Args, Op, Tensor, Value, args, call, fake};

const NAN: f32 = f32::NAN;

/// `0, 1, 2, …` as one image of 3 by 4.
fn image() -> Tensor {
    Tensor::from_vec((0..12).map(|i| i as f32).collect::<Vec<_>>(), [1, 1, 3, 4])
}

fn row(n: i64) -> Tensor {
    Tensor::from_vec((0..n).map(|i| i as f32).collect::<Vec<_>>(), [1, n])
}

fn of(op: &str, args: Args) -> Tensor {
    call(op, args).unwrap_or_else(|e| panic!("{op}: {e}"))[0].tensor().expect("a tensor").clone()
}

fn close(what: &str, t: &Tensor, expected: &[f32]) {
    let found = t.to_vec::<f32>().unwrap_or_else(|e| panic!("{what}: {e}"));
    let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan() || (a - b).abs() < 1e-4;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(same),
        "{what}: {found:?}, not {expected:?}"
    );
}

#[test]
fn resampling_filters() {
    let x = image();
    let line = x.slice(2, ..1).squeeze_dim(2);
    for (what, y, expected) in [
        (
            "linear",
            x.upsample_bilinear2d([2, 3], false),
            vec![1.16667, 2.5, 3.83333, 7.16667, 8.5, 9.83333],
        ),
        ("corners", x.upsample_bilinear2d([2, 3], true), vec![0.0, 1.5, 3.0, 8.0, 9.5, 11.0]),
        (
            "cubic",
            x.upsample_bicubic2d([1, 5], false),
            vec![3.93925, 4.61075, 5.5, 6.38925, 7.06075],
        ),
        (
            "smooth linear",
            x.upsample_bilinear2d_aa([2, 2], false),
            vec![2.21429, 3.78571, 7.21429, 8.78571],
        ),
        (
            "smooth cubic",
            x.upsample_bicubic2d_aa([2, 3], false),
            vec![1.4291, 2.73916, 4.04923, 6.95077, 8.26083, 9.5709],
        ),
        ("exact", x.upsample_nearest_exact2d([2, 3]), vec![0.0, 2.0, 3.0, 8.0, 10.0, 11.0]),
        ("nearest", x.upsample_nearest2d([2, 3]), vec![0.0, 1.0, 2.0, 4.0, 5.0, 6.0]),
        (
            "signal",
            line.upsample_linear1d(7, false),
            vec![0.0, 0.35714, 0.92857, 1.5, 2.07143, 2.64286, 3.0],
        ),
        // the factor counts, not the ratio of the sizes
        (
            "factor",
            of("aten::upsample_linear1d.vec", args![&line, (), false, [1.7]]),
            vec![0.0, 0.38235, 0.97059, 1.55882, 2.14706, 2.73529],
        ),
    ] {
        close(what, &y, &expected);
    }
    // of one width to another pixel by pixel, every filter passes a constant through
    let one = Tensor::ones([1, 2, 5, 7], DType::F64);
    for y in [
        one.upsample_bilinear2d([3, 9], true),
        one.upsample_bicubic2d([8, 3], false),
        one.upsample_bicubic2d_aa([2, 11], false),
    ] {
        assert!(y.to_vec::<f64>().unwrap().iter().all(|v| (v - 1.0).abs() < 1e-12));
    }
}

#[test]
fn bytes_are_resampled_in_fixed_point() {
    let x = (image() * 20.0).to_dtype(DType::U8);
    assert_eq!(
        x.upsample_bilinear2d([2, 3], false).to_vec::<u8>().unwrap(),
        [23, 50, 77, 143, 170, 197]
    );
    assert_eq!(
        x.upsample_bicubic2d_aa([2, 3], false).to_vec::<u8>().unwrap(),
        [29, 55, 81, 139, 165, 191]
    );
}

#[test]
fn grids_are_read_in_every_mode() {
    let x = image();
    let grid = Tensor::from_vec(vec![-1.0f32, -1.0, 0.0, 0.0, 1.0, 1.0, 0.5, -2.0], [1, 1, 4, 2]);
    let expected = [
        [[0.0, 5.5, 2.75, 0.0], [0.0, 5.5, 11.0, 2.5], [0.0, 5.5, 11.0, 6.5]],
        [[0.0, 6.0, 0.0, 0.0], [0.0, 6.0, 11.0, 2.0], [0.0, 6.0, 11.0, 6.0]],
        [
            [-0.23438, 5.5, 2.98438, 0.0],
            [-0.46875, 5.5, 11.46875, 2.59375],
            [-0.9375, 5.5, 11.9375, 6.59375],
        ],
    ];
    for (mode, outside) in (0..3).flat_map(|m| (0..3).map(move |o| (m, o))) {
        let y = x.grid_sampler(&grid, mode, outside, false);
        close(
            &format!("mode {mode}, outside {outside}"),
            &y,
            &expected[mode as usize][outside as usize],
        );
    }
    let nowhere = Tensor::full([1, 1, 1, 2], NAN, DType::F32);
    close(
        "a NaN beside a border is the first element",
        &x.grid_sampler(&nowhere, 0, 1, true),
        &[0.0],
    );
    close("a NaN on a curve", &x.grid_sampler(&nowhere, 2, 0, true), &[NAN]);
    let theta = Tensor::from_vec(vec![1.0f32, 0.0, 0.5, 0.0, 2.0, 0.0], [1, 2, 3]);
    close(
        "an affine grid",
        &theta.affine_grid_generator([1, 1, 2, 2], false),
        &[0.0, -1.0, 1.0, -1.0, 0.0, 1.0, 1.0, 1.0],
    );
}

#[test]
fn greatest_elements_and_back() {
    let x = image();
    let places = |t: &Tensor| t.to_vec::<i64>().unwrap();
    assert_eq!(places(&x.adaptive_max_pool2d([2, 3]).1), [5, 6, 7, 9, 10, 11]);
    // the last NaN is greatest, as in windows
    let mut with_nan = image().to_vec::<f32>().unwrap();
    (with_nan[0], with_nan[1]) = (NAN, NAN);
    let n = Tensor::from_vec(with_nan, [1, 1, 3, 4]);
    assert_eq!(places(&n.adaptive_max_pool2d([1, 1]).1), [1]);
    assert_eq!(places(&n.max_pool2d_with_indices(3, 3, 0, 1, false).1), [1]);
    let samples = Tensor::from_vec(vec![0.7f32, 0.2], [1, 1, 2]);
    assert_eq!(places(&x.fractional_max_pool2d([2, 2], [2, 2], &samples).1), [5, 7, 9, 11]);
    let (values, at) = (
        Tensor::from_vec(vec![5.0f32, 6.0], [1, 1, 2]),
        Tensor::from_vec(vec![3i64, 0], [1, 1, 2]),
    );
    close("unpooled", &values.max_unpool2d(&at, [2, 2]), &[6.0, 0.0, 0.0, 5.0]);
    let (_, at) = x.max_pool2d_with_indices(2, 1, 0, 1, false);
    let ones = Tensor::ones([1, 1, 2, 3], DType::F32);
    let grad = of(
        "aten::max_pool2d_with_indices_backward",
        args![ones, &x, [2, 2], [1, 1], [0, 0], [1, 1], false, at],
    );
    close("gradient", &grad, &[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(x.slice(0, ..0).adaptive_max_pool2d([2, 3]).0.sizes_i64().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn rearrangements() {
    let x = image();
    close("blocks", &x.slice(2, ..2).pixel_unshuffle(2), &[0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    close(
        "there and back",
        &x.expand([1, 9, 3, 4]).pixel_shuffle(3).pixel_unshuffle(3),
        &x.to_vec::<f32>().unwrap().repeat(9),
    );
    close("channels", &row(6).unsqueeze(-1).channel_shuffle(2), &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    close(
        "a quarter turn",
        &x.rot90(1, [-2, -1]),
        &[3.0, 7.0, 11.0, 2.0, 6.0, 10.0, 1.0, 5.0, 9.0, 0.0, 4.0, 8.0],
    );
    close("gated", &Tensor::from([1.0f32, 2.0, 0.0, -3.0]).glu(-1), &[0.5, 0.09485]);
    // nothing moves, and yet nothing is shared
    assert!(!x.pixel_shuffle(1).shares_storage(&x) && !x.rot90(4, [2, 3]).shares_storage(&x));
    let columns = x.im2col([2, 2], [1, 1], [1, 0], [2, 2]);
    close(
        "columns",
        &columns,
        &[0.0, 0.0, 4.0, 6.0, 0.0, 0.0, 5.0, 7.0, 0.0, 2.0, 8.0, 10.0, 1.0, 3.0, 9.0, 11.0],
    );
    close(
        "images",
        &columns.col2im([3, 4], [2, 2], [1, 1], [1, 0], [2, 2]),
        &x.to_vec::<f32>().unwrap(),
    );
    close(
        "reflected",
        &of("aten::reflection_pad1d", args![row(4), [-1, 2]]),
        &[1.0, 2.0, 3.0, 2.0, 1.0],
    );
    close("replicated", &of("aten::replication_pad1d", args![row(4), [-3, 2]]), &[3.0, 3.0, 3.0]);
}

/// `to` compares with what a tensor suggests to results, `contiguous` with how it lies.
#[test]
fn to_returns_tensors_that_already_suggest_the_format() {
    let to = |x: &Tensor, format: MemoryFormat| {
        let out =
            call("aten::to.dtype", args![x, DType::F32, false, false, format]).expect("a result");
        out[0].tensor().expect("a tensor").shares_storage(x)
    };
    let matrix = Tensor::ones([3, 4], DType::F32).t();
    assert!(to(&matrix, MemoryFormat::Contiguous) && to(&matrix, MemoryFormat::Preserve));
    assert!(!matrix.contiguous().shares_storage(&matrix));
    let image = Tensor::ones([2, 3, 4, 5], DType::F32);
    let last = image.clone_as(MemoryFormat::ChannelsLast);
    assert!(to(&last, MemoryFormat::ChannelsLast) && !to(&last, MemoryFormat::Contiguous));
    assert!(to(&image, MemoryFormat::Contiguous) && !to(&image, MemoryFormat::ChannelsLast));
}

/// Padding that only cuts is a clone of what is left.
#[test]
fn cuts_keep_the_order_of_memory() {
    let x = Tensor::from([[0i64, 1, 2], [3, 4, 5]]).t();
    let strides =
        |t: &Tensor| t.strides().iter().map(|s| s.as_i64().expect("a number")).collect::<Vec<_>>();
    let cut = x.constant_pad_nd([0, 0, -1, 0], 9);
    assert_eq!(
        (cut.to_vec::<i64>().expect("integers"), strides(&cut)),
        (vec![1, 4, 2, 5], vec![1, 2])
    );
    assert!(!cut.shares_storage(&x));
    assert_eq!(strides(&x.constant_pad_nd([-1, 1], 9)), [2, 1]);
}

#[test]
fn channels_last_images_stay_so() {
    let x = Tensor::ones([2, 4, 6, 6], DType::F32).clone_as(MemoryFormat::ChannelsLast);
    for (what, y, kept) in [
        ("bilinear", x.upsample_bilinear2d([3, 3], false), true),
        ("reflect", x.pad([1, 1, 1, 1], "reflect", None), true),
        ("circular", x.pad([1, 1, 1, 1], "circular", None), false),
        ("pixel_shuffle", x.pixel_shuffle(2), false), // one channel is left: both orders are one
        ("channel_shuffle", x.channel_shuffle(2), true),
        ("glu", x.glu(1), true),
        ("adaptive_max_pool2d", x.adaptive_max_pool2d([2, 2]).1, true),
        (
            "grid_sampler",
            x.grid_sampler(&Tensor::zeros([2, 2, 2, 2], DType::F32), 0, 0, false),
            false,
        ),
    ] {
        y.ok().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(
            y.strides()[1].as_i64() == Some(1) && y.size(1).as_i64() != Some(1),
            kept,
            "{what}: {}",
            y.meta()
        );
    }
}

#[test]
fn bad_arguments_are_named() {
    let (x, ints) = (image(), Tensor::from_vec(vec![1i64, 2, 3, 4], [1, 1, 2, 2]));
    let grid = Tensor::zeros([1, 2, 2, 2], DType::F32);
    for (y, word) in [
        (x.upsample_bilinear2d([0, 3], false), "`output_size`"),
        (x.upsample_bilinear2d([3], false), "`output_size`"),
        (ints.upsample_bilinear2d([3, 3], false), "a floating dtype or u8"),
        (x.to_dtype(DType::BF16).upsample_bicubic2d_aa([2, 2], false), "f32, f64 or u8"),
        (x.slice(3, ..0).upsample_bicubic2d([2, 2], false), "empty"),
        (x.grid_sampler(&grid, 3, 0, false), "`interpolation_mode`"),
        (x.grid_sampler(&grid, 0, -1, false), "`padding_mode`"),
        (x.grid_sampler(&grid.to_dtype(DType::F64), 0, 0, false), "`grid`"),
        (x.grid_sampler(&grid.slice(3, ..1), 0, 0, false), "`grid`"),
        (x.pad([0, 4], "reflect", None), "2 to 3 dimensions"),
        (x.pad([4, 0, 0, 0], "reflect", None), "too large"),
        (x.pad([-2, -2, 0, 0], "replicate", None), "removes all elements"),
        (x.pad([1, 1], "circular", None), "one or two dimensions"),
        (x.pixel_shuffle(0), "`upscale_factor`"),
        (x.pixel_unshuffle(2), "multiple of 2"),
        (x.channel_shuffle(0), "`groups`"),
        (x.rot90(1, [1, 1]), "`dims`"),
        (row(3).glu(1), "multiple of 2"),
        (x.im2col([4, 4], [1, 1], [0, 0], [1, 1]), "exceed"),
        (x.im2col([2, 2], [0, 1], [0, 0], [1, 1]), "`dilation`"),
        (x.col2im([3, 4], [2, 2], [1, 1], [0, 0], [1, 1]), "dimensions"),
        (x.max_unpool2d(&Tensor::full([1, 1, 3, 4], 16, DType::I64), [4, 4]), "holds 16"),
        (x.max_unpool2d(&Tensor::full([1, 1, 3, 4], -1, DType::I64), [4, 4]), "holds -1"),
        (
            x.fractional_max_pool2d([2, 2], [4, 4], &Tensor::zeros([1, 1, 2], DType::F32)).0,
            "exceed",
        ),
        (
            x.fractional_max_pool2d([2, 2], [2, 2], &Tensor::zeros([1, 2], DType::F32)).0,
            "`random_samples`",
        ),
        (ints.adaptive_max_pool2d([1, 1]).0, "a floating dtype"),
    ] {
        let text = y.ok().expect_err(word).to_string();
        assert!(text.contains(word), "{text} does not name {word}");
    }
    for (op, args, word) in [
        ("aten::upsample_bilinear2d.vec", args![&x, (), false, ()], "neither"),
        ("aten::upsample_bilinear2d.vec", args![&x, [2, 2], false, [1.0, 1.0]], "both"),
        ("aten::upsample_bilinear2d.vec", args![&x, (), false, [1e300, 1.0]], "`scale_factors`"),
        ("aten::upsample_bilinear2d.vec", args![&x, (), false, [f64::NAN, 1.0]], "`scale_factors`"),
    ] {
        let text = call(op, args).expect_err(word).to_string();
        assert!(text.contains(word), "{text} does not name {word}");
    }
}

#[test]
fn extreme_numbers_are_errors_or_nothing() {
    const MOST: i64 = i64::MAX;
    let (x, none) = (image(), Tensor::zeros([0, 1, 3, 4], DType::F32));
    let at = Tensor::zeros([0, 1, 3, 4], DType::I64);
    let theta = Tensor::zeros([0, 2, 3], DType::F32);
    for (op, args) in [
        ("aten::replication_pad1d", args![row(4), [i64::MIN, MOST]]),
        ("aten::_pad_circular", args![row(4), [i64::MIN, MOST]]),
        ("aten::reflection_pad2d", args![&x, [MOST, MOST, 0, 0]]),
        ("aten::im2col", args![&x, [2, 2], [MOST, 1], [MOST, 0], [MOST, 1]]),
        ("aten::im2col", args![&x, [MOST, MOST], [1, 1], [0, 0], [1, 1]]),
        ("aten::max_pool2d", args![&x, [3, 3], [1, 1], [0, 0], [MOST, 1]]),
        ("aten::pixel_shuffle", args![&x, MOST]),
        ("aten::upsample_bilinear2d", args![&x, [MOST, MOST], true]),
        ("aten::adaptive_max_pool2d", args![&x, [MOST, 1]]),
        (
            "aten::fractional_max_pool2d",
            args![&x, [MOST, 1], [MOST, 1], Tensor::zeros([1, 1, 2], DType::F32)],
        ),
    ] {
        assert!(call(op, args).is_err(), "{op}");
    }
    // where there is nothing to compute, no size is too large
    for (op, args) in [
        ("aten::adaptive_max_pool2d", args![&none, [MOST, 1]]),
        ("aten::max_unpool2d", args![&none, &at, [MOST, 1]]),
        ("aten::affine_grid_generator", args![&theta, [0i64, 1, 1 << 60, 1], true]),
        ("aten::upsample_bicubic2d", args![&none, [1i64 << 60, 2], true]),
    ] {
        of(op, args);
    }
    // As in PyTorch, strides that overflow are an error even without elements.
    let e = call("aten::max_unpool2d", args![&none, &at, [MOST, MOST]]).unwrap_err();
    assert!(e.to_string().contains("cannot allocate"), "{e}");
    for scale in [1e-300, 1e300, f64::INFINITY, f64::NAN, -1.0] {
        for op in [
            "upsample_bilinear2d",
            "upsample_bicubic2d",
            "_upsample_bilinear2d_aa",
            "_upsample_lanczos2d_aa",
        ] {
            of(&format!("aten::{op}"), args![&x, [5, 2], false, scale, scale]);
        }
        of("aten::_upsample_nearest_exact2d", args![&x, [5, 2], scale, scale]);
    }
}

#[test]
fn symbolic_sizes_take_no_guards() {
    let scope = Scope::new();
    let symbol = |name: &str, hint: i64| {
        scope.backed(Some(name), Range::new(4, 64), hint).expect("a fresh symbol")
    };
    let (b, h) = (symbol("b", 5), symbol("h", 8));
    let x = Tensor::fake([b, 4.into(), h, 6.into()], DType::F32);
    let grid = Tensor::fake([b, h, 3.into(), 2.into()], DType::F32);
    let fake = |op: &str, args: Args| {
        let out =
            fake::call(Op::find(op).expect("an operator"), &args, Some(&scope), Loc::caller());
        out.unwrap_or_else(|e| panic!("{op}: {e}"))[0].tensor().expect("a tensor").clone()
    };
    let sizes = |d: &[SymInt]| {
        format!("[{}]", d.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    };
    for (y, expected) in [
        (x.upsample_bilinear2d([h * 2, 5.into()], false), "[b, 4, 2 * h, 5]"),
        (
            fake("aten::upsample_bicubic2d.vec", args![&x, (), false, [2.0, 0.5]]),
            "[b, 4, 2 * h, 3]",
        ),
        (
            fake("aten::upsample_nearest2d.vec", args![&x, (), [1.5, 1.0]]),
            "[b, 4, (3 * h) // 2, 6]",
        ),
        (x.pad([1, 2, 3, 0], "reflect", None), "[b, 4, h + 3, 9]"),
        (x.pad([1, 2, 3, 0], "replicate", None), "[b, 4, h + 3, 9]"),
        (x.pixel_shuffle(2), "[b, 1, 2 * h, 12]"),
        (x.channel_shuffle(2), "[b, 4, h, 6]"),
        (x.glu(1), "[b, 2, h, 6]"),
        (x.im2col([3, 3], [1, 1], [1, 1], [1, 1]), "[b, 36, 6 * h]"),
        (x.adaptive_max_pool2d([2, 3]).0, "[b, 4, 2, 3]"),
        (x.grid_sampler(&grid, 0, 0, true), "[b, 4, h, 3]"),
        (x.rot90(1, [2, 3]), "[b, 4, 6, h]"),
    ] {
        y.ok().unwrap_or_else(|e| panic!("{expected}: {e}"));
        assert_eq!(sizes(y.sizes()), expected);
    }
    let guards: Vec<String> =
        scope.with(|d| d.guards.iter().map(|g| d.table.display_bool(g.cond).to_string()).collect());
    assert_eq!(guards, Vec::<String>::new());
}

#[test]
fn planes_without_elements_are_not_pooled() {
    let zeros = |sizes: &[i64]| Tensor::zeros(sizes, DType::F32);
    let (k, one) = (vec![2i64, 2], vec![1i64, 1]);
    for sizes in [&[1, 1, 0, 5][..], &[1, 1, 5, 0], &[1, 0, 5, 5], &[0, 5, 5]] {
        for op in ["aten::max_pool2d_with_indices", "aten::avg_pool2d"] {
            assert!(
                call(op, args![zeros(sizes), k.clone(), one.clone(), one.clone()]).is_err(),
                "{op} {sizes:?}"
            );
        }
    }
    let batch = call("aten::avg_pool2d", args![zeros(&[0, 1, 5, 5]), k, one.clone(), one])
        .expect("an empty batch");
    assert_eq!(batch[0].tensor().unwrap().sizes_i64().unwrap(), [0, 1, 6, 6]);
}

#[test]
fn windows_are_checked_before_they_run() {
    let x = Tensor::ones([1, 1, 9, 9], DType::F32);
    let pool =
        |p: i64| call("aten::max_pool2d", args![&x, vec![3i64], vec![1i64], vec![p], vec![2i64]]);
    assert!(pool(2).is_err_and(|e| e.to_string().contains("half of `kernel_size`")));
    assert_eq!(pool(1).unwrap()[0].tensor().unwrap().sizes_i64().unwrap(), [1, 1, 7, 7]);
    let transposed = |stride: i64, more: i64, dilation: i64| {
        let ones = Tensor::ones([1, 1, 3], DType::F32);
        call(
            "aten::conv_transpose1d",
            args![
                &ones,
                &ones,
                Value::None,
                vec![stride],
                vec![0i64],
                vec![more],
                1,
                vec![dilation]
            ],
        )
    };
    assert!(transposed(1, 1, 1).is_err() && transposed(2, 2, 2).is_err());
    for out in [transposed(2, 1, 1), transposed(1, 1, 2)] {
        assert_eq!(
            out.unwrap()[0].tensor().unwrap().to_vec::<f32>().unwrap(),
            [1.0, 1.0, 2.0, 1.0, 2.0, 1.0, 1.0, 0.0]
        );
    }
    let row = Tensor::ones([1, 1, 1, (1 << 20) + 8], DType::F32);
    let out = call("aten::max_pool2d", args![&row, vec![1i64, (1 << 20) + 1], vec![1i64]])
        .expect("a wide window");
    assert_eq!(out[0].tensor().unwrap().sizes_i64().unwrap(), [1, 1, 1, 8]);
}
