//! Every fact of every builtin operator, as one snapshot: a change of the table shows which
//! answers it changes.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::graph::{ArgKind, MemoryFacts, OpFacts};
use maquette_ops::Op;
use maquette_ops::library::{Facts, all};
use maquette_ops::operator::from_host;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The facts that a registration at run time does not change, and the functions of rewriting.
fn facts_of(op: Op) -> String {
    let name = op.name();
    let tensor = || ArgKind::Tensor { dtype: DType::F32, sizes: &[2] };
    let arith = |extra: &[ArgKind<'_>], alpha: Option<f64>| {
        let args: Vec<_> = [tensor(), tensor()].into_iter().chain(extra.iter().cloned()).collect();
        let kwargs: Vec<_> = alpha.map(|x| ("alpha", ArgKind::Float(x))).into_iter().collect();
        Facts.arith_op(name, &args, &kwargs)
    };
    let mut out = format!("{:?}", Facts.placement(name));
    for (holds, fact) in [
        (Facts.observes_strides(name), "observes_strides"),
        (Facts.observes_storage(name), "observes_storage"),
        (Facts.is_metadata_query(name), "is_metadata_query"),
        (Facts.is_data_movement(name), "is_data_movement"),
        (Facts.preserves_elements(name), "preserves_elements"),
        (Facts.ignores_contents(name), "ignores_contents"),
        (Facts.copies_operands(name), "copies_operands"),
        (Facts.has_effect(name), "has_effect"),
        (Facts.uses_rng(name), "uses_rng"),
        (Facts.functional_variant(name).is_some(), "in_place"),
    ] {
        if holds {
            let _infallible = write!(out, " {fact}");
        }
    }
    let plain = arith(&[], None);
    let scaled = [arith(&[ArgKind::Int(Some(2))], None), arith(&[], Some(2.0))];
    assert_eq!(plain, arith(&[ArgKind::Int(Some(1))], Some(1.0)), "{name}");
    if let Some(plain) = plain {
        let _infallible = write!(out, " arith={plain:?}");
        if scaled != [Some(plain); 2] {
            let _infallible = write!(out, " unless scaled");
        }
    }
    let host = from_host(op);
    let tags: Vec<String> = op.tags().iter().map(|t| t.to_string()).collect();
    let _infallible = write!(out, " from_host={host} tags={}", tags.join(","));
    out
}

#[test]
fn facts_of_every_builtin_operator() {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for op in all().into_iter().filter(Op::is_builtin) {
        groups.entry(facts_of(op)).or_default().push(op.name());
    }
    let mut text = String::new();
    for (facts, names) in groups {
        text += &format!("{facts}\n");
        let mut line = String::from("   ");
        for name in names {
            if line.len() + name.len() > 98 {
                text += &format!("{line}\n");
                line = String::from("   ");
            }
            line += &format!(" {name}");
        }
        text += &format!("{line}\n");
    }
    insta::assert_snapshot!(text);
}
