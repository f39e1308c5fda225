//! Tensors by their storage, and the sweep that finds whether any two meet.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::{ByStorage, Tensor, any_may_overlap};

#[test]
fn the_tensors_of_a_storage_are_found_in_order() {
    let (a, b) = (Tensor::zeros([4], DType::F32), Tensor::zeros([4], DType::F32));
    let all = [a.clone(), b.clone(), a.slice(0, 1..2), b.slice(0, 2..3), a.clone()];
    let index = ByStorage::new(all.iter().enumerate());
    assert_eq!(index.having_storage_of(&a).collect::<Vec<_>>(), [0, 2, 4]);
    assert_eq!(index.having_storage_of(&b).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(index.having_storage_of(&Tensor::zeros([4], DType::F32)).count(), 0);
}

#[test]
fn a_look_up_among_many_storages_visits_one_tensor() {
    let all: Vec<Tensor> = (0..1024).map(|_| Tensor::zeros([1], DType::F32)).collect();
    let index = ByStorage::new(all.iter().enumerate());
    for (number, t) in all.iter().enumerate() {
        assert_eq!(index.having_storage_of(t).collect::<Vec<_>>(), [number]);
    }
}

/// The sweep against a comparison of each two, on windows of two storages.
#[test]
fn a_sweep_agrees_with_a_comparison_of_each_two() {
    let storages = [Tensor::zeros([24], DType::F32), Tensor::zeros([24], DType::F32)];
    let mut state = 1u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below) as i64
    };
    let mut found = [0, 0];
    for _ in 0..2000 {
        let mut window = || {
            let (len, stride, offset) = (draw(3), 1 + draw(3), draw(18));
            let base = &storages[draw(2) as usize];
            base.as_strided([len], [stride], Some(offset.into()))
        };
        let written: Vec<Tensor> = (0..3).map(|_| window()).collect();
        let read: Vec<Tensor> = (0..2).map(|_| window()).collect();
        let pair = |a: &Tensor, b: &Tensor| a.may_overlap(b);
        let expected = written
            .iter()
            .enumerate()
            .any(|(i, a)| written[..i].iter().chain(&read).any(|b| pair(a, b)));
        assert_eq!(any_may_overlap(written.iter(), read.iter()), expected);
        found[usize::from(expected)] += 1;
    }
    assert!(found[0] > 100 && found[1] > 100, "{found:?}");
}
