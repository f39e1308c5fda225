//! Builtin operators, through views.

use super::{Book, arange, four};
use maquette_ir::DType;
use maquette_ops::{Tensor, Value, args};

#[test]
fn builtin_operators() {
    let mut book = Book::default();
    let table = || vec![arange(12).reshape([3i64, 4]), arange(4)];
    book.case(
        "v = x.view(12); v.add_(1); return x",
        "a view of all of it: no part is stored",
        &table,
        &|v| {
            v[0].view([12i64]).add_(1.0);
            vec![v[0].clone()]
        },
    );
    book.case("x.diagonal().add_(1)", "a diagonal is strided like any view", &table, &|v| {
        v[0].diagonal(0, 0, 1).add_(1.0);
        vec![]
    });
    book.case(
        "x.split(2, 1)[1].diagonal().fill_(0)",
        "a view of a view is one view",
        &table,
        &|v| {
            v[0].split(2i64, 1).unwrap()[1].diagonal(0, 0, 1).fill_(0.0);
            vec![]
        },
    );
    book.case(
        "x.as_strided([2, 2], [5, 2]).add_(1)",
        "places that no other view names",
        &table,
        &|v| {
            v[0].as_strided([2i64, 2], [5i64, 2], None).add_(1.0);
            vec![]
        },
    );
    book.case("x.t()[1].add_(y[:3])", "a row of the transposed is a column", &table, &|v| {
        v[0].t().select(0, 1).add_(v[1].slice(0, 0..3));
        vec![]
    });
    book.case(
        "a = x[:2]; b = x[1:]; x.mul_(2); return a + b",
        "every view sees what is done to the whole",
        &table,
        &|v| {
            let (a, b) = (v[0].slice(0, 0..2), v[0].slice(0, 1..3));
            v[0].mul_(2.0);
            vec![a + b]
        },
    );
    book.case("x[1:].copy_(i64 row)", "copies convert and repeat", &table, &|v| {
        v[0].slice(0, 1..3).copy_(&v[1].to_dtype(DType::I64));
        vec![]
    });
    book.case(
        "x[:, 1:3].index_put_([[0, 2]], 7)",
        "scattered writes through a view",
        &table,
        &|v| {
            let rows = Tensor::from_vec(vec![0i64, 2], [2]);
            v[0].slice(1, 1..3).index_put_(&[Some(&rows)], &v[1].select(0, 0), false);
            vec![]
        },
    );
    book.case(
        "x.view(f32).add_(1) where x is f32",
        "a view as the dtype it has is the tensor",
        &table,
        &|v| {
            let same = maquette_ops::call("aten::view.dtype", args![&v[0], DType::F32]).unwrap();
            same.iter().flat_map(Value::tensors).for_each(|t| drop(t.add_(1.0)));
            vec![]
        },
    );
    let captured = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [4]);
    book.case(
        "a.copy_(x) of a tensor a from outside; return a * 2",
        "a is left changed, like an input",
        &four,
        &|v| {
            captured.copy_(&v[0]);
            vec![&captured * 2.0]
        },
    );
    book.check("builtin_operators");
}
