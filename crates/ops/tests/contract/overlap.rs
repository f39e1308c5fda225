//! Operands that overlap what the call writes.

use super::values;
use maquette_ops::{AccessError, ErrorKind, Op, Result, Tensor, args, custom_op};

fn add_into(name: &str) -> Op {
    custom_op(name)
        .schema("(Tensor x, Tensor(a!) out) -> ()")
        .kernel(|x: &Tensor, out: &mut Tensor| -> Result<()> {
            let x = x.read::<f32>()?;
            let mut out = out.write::<f32>()?;
            // a running sum: what is read after a write would show
            let mut carry = 0.0;
            for (o, x) in out.iter_mut().zip(x.iter()) {
                *o += x + carry;
                carry += x;
            }
            Ok(())
        })
        .register()
        .unwrap()
}

#[test]
fn a_read_operand_that_overlaps_a_mutated_one_is_read_as_it_was() {
    let op = add_into("contract::add_into");
    let y = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let alone = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    op.call(args![&alone, &y]).unwrap();
    let expected = values(&y);

    let y = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    op.call(args![&y, &y]).unwrap();
    assert_eq!(values(&y), expected);
}

#[test]
fn two_mutated_operands_must_not_overlap() {
    let op = custom_op("contract::two")
        .arg_names(["x", "y"])
        .kernel(|x: &mut Tensor, y: &mut Tensor| -> Result<()> {
            let _ = (x, y);
            Ok(())
        })
        .register()
        .unwrap();
    let x = Tensor::from([1.0f32, 2.0]);
    let e = op.call(args![&x, &x]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::MutatedOverlap { .. })), "{e}");
    assert_eq!(values(&x), [1.0, 2.0], "refused before anything ran");
}

#[test]
fn an_operand_that_is_the_mutated_region_itself() {
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [4]);
    x.add_(&x).ok().unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    let s = x.slice(0, 1..3);
    s.mul_(x.slice(0, 1..3)).ok().unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [2.0, 16.0, 36.0, 8.0]);
    // overlapping, but elsewhere: read as it was before
    x.slice(0, 1..4).copy_(&x.slice(0, 0..3)).ok().unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [2.0, 2.0, 16.0, 36.0]);
}

#[test]
fn a_copied_operand_keeps_its_strides() {
    let copied = |x: &mut Tensor, y: &Tensor| -> Result<Tensor> {
        let strides: Vec<i64> = y.strides().iter().filter_map(|s| s.as_i64()).collect();
        let seen = y.to_vec::<f32>()?;
        x.fill_(0.0).ok()?;
        assert_eq!(y.to_vec::<f32>()?, seen);
        Ok(Tensor::from(strides))
    };
    custom_op("contract::lies")
        .schema("(Tensor(a!) x, Tensor y) -> Tensor")
        .kernel(copied)
        .register()
        .unwrap();
    let memory = || Tensor::from_vec((0..24).map(|i| i as f32).collect(), [24]);
    let layouts: [(&[i64], &[i64]); 6] = [
        (&[2, 3], &[3, 1]),
        (&[3, 2], &[1, 3]),
        (&[2, 3], &[8, 2]),
        (&[4, 3], &[0, 2]),
        (&[4, 3], &[1, 1]),
        (&[2, 0, 3], &[7, 5, 2]),
    ];
    for (sizes, strides) in layouts {
        let m = memory();
        let y = m.as_strided(sizes, strides, Some(1.into()));
        let found = maquette_ops::call("contract::lies", maquette_ops::args![&m, &y]).unwrap();
        assert_eq!(found[0].tensor().unwrap().to_vec::<i64>().unwrap(), strides);
        assert_eq!(m.to_vec::<f32>().unwrap(), [0.0; 24]);
    }
}
