//! Sizes that only a run knows.

use super::common::check_dynamic;
use super::{Book, arange, call, operators};
use maquette_ir::DType;
use maquette_ops::{Tensor, Value, args};

#[test]
fn sizes_that_are_symbols() {
    operators();
    let mut book = Book::default();
    let cache = |n: i64, m: i64| {
        move || {
            vec![arange(12).reshape([2i64, 6]), arange(n), arange(2).reshape([2i64, 1]), arange(m)]
        }
    };
    let f = check_dynamic(
        &[(1, 0, "n"), (3, 0, "m")],
        |v| {
            let (c, n, m) = (v[0].neg(), v[1].size(0), v[3].size(0));
            c.narrow(1, n, 1i64).copy_(&v[2]);
            (c.narrow(1, 0i64, n) + 0.5, c.narrow(1, 0i64, m) + 0.5)
        },
        &[&cache(3, 2), &cache(0, 0), &cache(1, 6), &cache(5, 3)],
    );
    book.page(
        "c[:, n:n+1].copy_(k); return c[:, :n] + 0.5, c[:, :m] + 0.5",
        "before n nothing was written, whatever n is; of m nothing is known, and no guard is \
            added to find out",
        &f,
    );
    let rows = |n: i64| move || vec![arange(3 * n).reshape([n, 3])];
    let f = check_dynamic(
        &[(0, 0, "n")],
        |v| {
            call("one", args![&v[0].slice(0, 1..3)]);
            v[0].select(1, 0)
        },
        &[&rows(4), &rows(3), &rows(2), &rows(1), &rows(0)],
    );
    book.page(
        "one(x[1:3]!); return x[:, 0]",
        "sizes 0 and 1 as well, and no guard but the program's own",
        &f,
    );
    let flags = |bits: [f32; 4]| move || vec![Tensor::from_vec(bits.to_vec(), [4])];
    let f = check_dynamic(
        &[],
        |v| {
            let z = v[0].nonzero().to_dtype(DType::F32);
            call("one", args![&z.slice(0, 0..1)]);
            z
        },
        &[&flags([1.0, 0.0, 2.0, 3.0]), &flags([0.0, 0.0, 0.0, 5.0]), &flags([0.0; 4])],
    );
    book.page(
        "z = nonzero(x); one(z[:1]!); return z",
        "a part of what has as many rows as the data says",
        &f,
    );
    let f = check_dynamic(
        &[],
        |v| {
            let (n, y) = (v[0].nonzero().size(0), v[0].neg());
            y.narrow(0, 0i64, n).fill_(0.0);
            y
        },
        &[&flags([1.0, 0.0, 2.0, 3.0]), &flags([0.0; 4]), &flags([1.0; 4])],
    );
    book.page(
        "y = neg(x); y[:len(nonzero(x))].fill_(0); return y",
        "the place waits for the number it depends on",
        &f,
    );
    let two_flags = |bits: [f32; 2]| move || vec![Tensor::from_vec(bits.to_vec(), [2])];
    let f = check_dynamic(
        &[],
        |v| {
            let (c, y) = (v[0].nonzero().to_dtype(DType::F32), v[0].neg());
            let parts = Value::List([&c, &y].map(|t| Value::from(t.slice(0, ..))).into());
            call("some", args![&v[0].select(0, 0), parts]);
            vec![c, y]
        },
        &[&two_flags([1.0, 2.0]), &two_flags([0.0, 3.0]), &two_flags([0.0; 2])],
    );
    book.page(
        "c = nonzero(x); y = neg(x); some(x[0], [c[:]!, y[:]!]); return c, y",
        "all of a tensor whose size depends on data, beside one of a known size: two values, and \
            of the size is known what x allows",
        &f,
    );
    let sum =
        |v: Vec<Tensor>| v[0].nonzero().to_dtype(DType::F32) + Tensor::zeros([3i64, 1], DType::F32);
    let f = check_dynamic(&[], sum, &[&flags([1.0, 0.0, 2.0, 3.0])]);
    let one = [Value::Tensor(Tensor::from_vec(vec![0.0f32, 0.0, 0.0, 5.0], [4]))];
    let refused = maquette_interp::Interpreter::new(&f).run(&one).unwrap_err();
    book.page(
        "return nonzero(x) + zeros(3, 1)",
        &format!("made for three rows, and says so when one would be repeated: {}", refused.kind()),
        &f,
    );
    book.check("sizes_that_are_symbols");
}
