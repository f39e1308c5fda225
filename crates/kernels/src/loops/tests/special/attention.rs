//! Scaled dot-product attention.

use super::agrees_specialised;
use crate::loops::tests::noise;
use crate::loops::tests::random::Random;
use maquette_ir::loops::named::{self, Scale};
use maquette_ir::loops::{Array, LoopBuilder, LoopNest};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    /// The leading sizes of queries, of keys and of values.
    lead: [&'static [i64]; 3],
    queries: i64,
    keys: i64,
    /// The widths of queries and of values.
    widths: (i64, i64),
    mask: Option<(DType, &'static [i64])>,
    causal: bool,
    scale: Option<f64>,
    grouped: bool,
    round: bool,
    plain: bool,
    logarithms: bool,
}

const CASE: Case = Case {
    dtype: DType::F32,
    lead: [&[2], &[2], &[2]],
    queries: 5,
    keys: 7,
    widths: (8, 3),
    mask: None,
    causal: false,
    scale: None,
    grouped: false,
    round: false,
    plain: false,
    logarithms: false,
};

const HEADS: [&[i64]; 3] = [&[1, 6], &[2, 3], &[2, 3]];

impl Case {
    /// The leading sizes of the output.
    fn batch(&self) -> Vec<i64> {
        let rank = self.lead.iter().map(|lead| lead.len()).max().unwrap_or(0);
        let size = |d: usize| {
            let of = |lead: &&[i64]| (lead.len() + d).checked_sub(rank).map(|d| lead[d]);
            // A size of 1 is broadcast, also to none.
            self.lead.iter().filter_map(of).find(|size| *size != 1).unwrap_or(1)
        };
        (0..rank).map(size).collect()
    }

    /// The nest, the values of its symbols, and its operands, of which some elements are special.
    fn nest(&self) -> (LoopNest, Vec<i64>, Vec<Array>) {
        let mut nest = LoopBuilder::new(SymTable::new());
        let (n, l, (e, d)) = (self.queries, self.keys, self.widths);
        let own = [[n, e], [l, e], [l, d]];
        let mut sizes: Vec<Vec<i64>> =
            self.lead.iter().zip(own).map(|(lead, own)| [*lead, &own].concat()).collect();
        sizes.extend(self.mask.map(|(_, sizes)| sizes.to_vec()));
        let dtypes = [self.dtype; 3].into_iter().chain(self.mask.map(|(dtype, _)| dtype));
        let inputs: Vec<_> =
            dtypes.clone().zip(&sizes).map(|(d, sizes)| nest.input(d, sizes.len())).collect();
        let batch = self.batch();
        let batch_sizes: Vec<_> = batch.iter().map(|_| nest.new_size()).collect();
        let axes: Vec<_> = batch_sizes.into_iter().map(|size| nest.axis(size)).collect();
        let scale = match self.scale {
            Some(_) => Scale::Number(nest.number(self.dtype.accumulator())),
            None => Scale::Width,
        };
        let of = named::Attention {
            query: &inputs[0],
            key: &inputs[1],
            value: &inputs[2],
            mask: inputs.get(3),
            batch: &axes,
            causal: self.causal,
            scale,
            grouped: self.grouped,
            round: self.round,
            plain_softmax: self.plain,
            out: self.dtype,
        };
        let attended = named::attention(&mut nest, &of).expect("is valid");
        let mut results = vec![attended.output];
        if self.logarithms {
            let out = self.dtype.accumulator();
            results.push(named::logarithms(&mut nest, &attended, out).expect("is valid"));
        }
        let nest = nest.finish(&results).expect("is valid");
        let symbols = sizes.concat().into_iter().chain(batch).collect();
        let operands = dtypes.zip(&sizes).map(|(dtype, sizes)| {
            let numel = sizes.iter().product::<i64>() as usize;
            let element = |x: f64| match dtype {
                DType::Bool => Scalar::Bool(x > -1.5),
                _ => Scalar::Float(x),
            };
            Array::new(dtype, sizes, noise(numel).map(element)).expect("fits")
        });
        (nest, symbols, operands.collect())
    }

    /// Compares the specialisation, the generic executor and the reference.
    fn holds(&self) {
        let (nest, symbols, operands) = self.nest();
        self.holds_of(&nest, &symbols, &operands);
    }

    fn holds_of(&self, nest: &LoopNest, symbols: &[i64], operands: &[Array]) {
        let numbers: Vec<Scalar> = self.scale.map(Scalar::Float).into_iter().collect();
        let failure = agrees_specialised("attention", nest, symbols, operands, &numbers);
        assert_eq!(failure, None, "{self:?}");
    }
}

/// A random attention.
pub(in crate::loops::tests) fn random_call(random: &mut Random) {
    let (lead, grouped) = random.pick(&[
        (CASE.lead, false),
        ([&[]; 3], false),
        ([&[], &[3, 1], &[2]], false),
        (HEADS, true),
    ]);
    let mut below = |n: usize| random.below(n) as i64;
    let (queries, keys) = (below(20), below(40));
    let widths = (1 + below(40), below(9));
    let case = Case {
        dtype: random.pick(&[DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16]),
        lead,
        queries,
        keys,
        widths,
        mask: random.pick(&[None, Some((DType::Bool, &[1])), Some((DType::F32, &[1, 1]))]),
        causal: random.chance(2),
        scale: random.pick(&[None, Some(0.3)]),
        grouped,
        round: random.chance(2),
        plain: random.chance(2),
        logarithms: random.chance(2),
    };
    case.holds();
}

#[test]
fn attention_has_the_bits_of_its_nest() {
    let cases = [
        CASE,
        Case { scale: Some(0.3), causal: true, ..CASE },
        Case { lead: [&[], &[3, 1], &[2]], widths: (1, 1), ..CASE },
        Case { queries: 1, keys: 1, widths: (3, 2), logarithms: true, ..CASE },
        Case { queries: 4, keys: 2, causal: true, widths: (13, 5), logarithms: true, ..CASE },
        Case { lead: [&[]; 3], mask: Some((DType::Bool, &[5, 7])), logarithms: true, ..CASE },
        Case { mask: Some((DType::F32, &[2, 1, 7])), ..CASE },
        Case { mask: Some((DType::F32, &[7])), causal: true, logarithms: true, ..CASE },
        // keys for two segments of a sum, and for two chunks of lanes
        Case { lead: [&[]; 3], queries: 2, keys: 2100, widths: (4, 2), ..CASE },
        // several blocks of queries
        Case { lead: [&[]; 3], queries: 140, keys: 150, widths: (2, 3), causal: true, ..CASE },
        Case { lead: [&[]; 3], queries: 3, keys: 4, widths: (1100, 1), ..CASE },
        Case { plain: true, causal: true, logarithms: true, ..CASE },
        // most queries see no key
        Case { plain: true, mask: Some((DType::Bool, &[5, 1])), ..CASE },
        Case { mask: Some((DType::Bool, &[5, 1])), ..CASE },
    ];
    let half = [DType::F16, DType::BF16].into_iter().flat_map(|dtype| {
        [(true, false), (false, true)].map(|(round, causal)| Case {
            dtype,
            round,
            causal,
            mask: Some((if causal { dtype } else { DType::F32 }, &[5, 7])),
            logarithms: true,
            ..CASE
        })
    });
    let wide = [Case { dtype: DType::F64, mask: Some((DType::F32, &[5, 1])), ..CASE }];
    cases.into_iter().chain(half).chain(wide).for_each(|case| case.holds());
}

#[test]
fn heads_in_groups_have_the_bits_of_their_nest() {
    let grouped = Case { grouped: true, lead: HEADS, ..CASE };
    let cases = [
        grouped,
        Case { mask: Some((DType::Bool, &[6, 5, 7])), causal: true, logarithms: true, ..grouped },
        Case { mask: Some((DType::BF16, &[5, 7])), dtype: DType::BF16, round: true, ..grouped },
        Case { lead: [&[4]; 3], logarithms: true, ..grouped },
        // keys and values differ in their heads
        Case { lead: [&[6], &[3], &[2]], logarithms: true, ..grouped },
    ];
    cases.iter().for_each(Case::holds);
}

#[test]
fn attention_to_nothing_has_the_bits_of_its_nest() {
    let cases = [
        Case { keys: 0, logarithms: true, ..CASE },
        Case { keys: 0, plain: true, logarithms: true, ..CASE },
        Case { queries: 0, ..CASE },
        Case { widths: (4, 0), logarithms: true, ..CASE },
        Case { widths: (0, 2), scale: Some(0.5), ..CASE },
        Case { lead: [&[0], &[0], &[1]], ..CASE },
    ];
    cases.iter().for_each(Case::holds);
}

/// A value that is not finite is multiplied by the weight of a hidden key, also by a kernel that
/// leaves out keys which a block of queries does not see.
#[test]
fn special_values_have_the_bits_of_the_nest() {
    let several_blocks = Case { lead: [&[]; 3], queries: 140, keys: 141, widths: (2, 3), ..CASE };
    for case in [
        Case { causal: true, logarithms: true, ..CASE },
        Case { mask: Some((DType::F32, &[5, 7])), causal: true, ..CASE },
        Case { mask: Some((DType::F32, &[5, 1])), plain: true, ..CASE },
        Case { mask: Some((DType::Bool, &[5, 7])), scale: Some(1e30), ..CASE },
        Case { causal: true, ..several_blocks },
    ] {
        let (nest, symbols, operands) = case.nest();
        for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-45, -3e38] {
            for (operand, at) in [(0, 0.4), (1, 0.9), (2, 0.95), (2, 0.998), (3, 0.6)] {
                let mut operands = operands.clone();
                let Some(x) = operands.get(operand).filter(|x| x.dtype() == DType::F32) else {
                    continue;
                };
                let index = (at * x.elements().len() as f64) as usize;
                let elements = x.elements().iter().enumerate();
                let elements =
                    elements.map(|(i, x)| if i == index { Scalar::Float(special) } else { *x });
                operands[operand] = Array::new(DType::F32, x.sizes(), elements).expect("fits");
                case.holds_of(&nest, &symbols, &operands);
            }
        }
    }
}

/// Products with the weights underflow to -0, and keys that a query does not see follow.
#[test]
fn sums_of_nothing_have_no_sign() {
    let case = Case { lead: [&[]; 3], queries: 140, keys: 140, widths: (1, 2), ..CASE };
    let case = Case { causal: true, ..case };
    let (nest, symbols, mut operands) = case.nest();
    let values = (0..280).map(|i| Scalar::Float(if i % 2 == 0 { -1e-45 } else { 0.0 }));
    operands[2] = Array::new(DType::F32, &[140, 2], values).expect("fits");
    case.holds_of(&nest, &symbols, &operands);
}
