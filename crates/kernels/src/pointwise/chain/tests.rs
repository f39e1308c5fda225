//! Actions with numbers beside the operations of elements.

use super::{Action, Chained, Code, LineAction};
use crate::element::Element;
use crate::isa::Isa;
use crate::pointwise::ops::{Max, Min, Op2};
use crate::view::Ptr;

/// Clamps by each of the numbers have the bits of the operation, of zeros and NaNs either.
fn clamps<F>(numbers: &[F], bits: impl Fn(F) -> u64)
where
    F: Chained + Element,
    Min: Op2<F, F>,
    Max: Op2<F, F>,
{
    let isas = [Isa::Scalar, Isa::Avx2, Isa::Avx512];
    for isa in isas.into_iter().filter(|isa| crate::isa::available(*isa)) {
        for &number in numbers {
            for (code, f) in [
                (Code::MinScalar, <Min as Op2<F, F>>::f as fn(F, F) -> F),
                (Code::MaxScalar, <Max as Op2<F, F>>::f),
            ] {
                let mut found = numbers.to_vec();
                let at = Ptr(found.as_mut_ptr());
                let action = |code, at| LineAction { action: Action { code, at }, step: 0 };
                let by = Ptr(std::ptr::from_ref(&number).cast_mut());
                let mut actions =
                    [action(Code::Load, at), action(code, by), action(Code::Store, at)];
                // SAFETY: the addresses are of these elements.
                unsafe { F::run_lines(isa, &mut actions, 1, numbers.len()) };
                for (&x, found) in numbers.iter().zip(found) {
                    let place = format!("{isa:?} {code:?} {x:?} {number:?}");
                    assert_eq!(bits(found), bits(f(x, number)), "{place}");
                }
            }
        }
    }
}

#[test]
fn clamps_have_the_bits_of_the_operation() {
    let numbers = [
        0.0, -0.0, 1.0, -1.0, 6.0, 0.5, -20.0, 1e30, -1e30, 1e-40, -1e-40, 3.5, -3.5, 88.0, -88.0,
        100.0, 7.0,
    ];
    let mut of_f64: Vec<f64> = numbers.to_vec();
    of_f64.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, f64::MIN_POSITIVE / 2.0]);
    let of_f32: Vec<f32> = of_f64.iter().map(|x| *x as f32).collect();
    clamps(&of_f64, f64::to_bits);
    clamps(&of_f32, |x| u64::from(x.to_bits()));
}
