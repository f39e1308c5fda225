//! Every rule in two programs: one where it holds, and its neighbour, where its condition fails.
//! Loads see stores by rules alone here. What comes of the first by the rule, and of the second by
//! all rules, is in `snapshots/rule_pairs__every_rule.snap`, to be read beside the equations.

mod common;

use common::{arange, check_under, uses_of};
use maquette_ir::DType::{F16, F32, F64, I64};
use maquette_ir::MemoryFormat;
use maquette_ops::{Tensor, args};
use maquette_rewrite::{Options, rules};
use std::fmt::Write;

/// A program, and what it says.
type Program = (&'static str, fn(&[Tensor]) -> Tensor);

struct Pair {
    rule: &'static str,
    /// The rules that make what it is tried on.
    after: &'static [&'static str],
    inputs: fn() -> Vec<Tensor>,
    holds: Program,
    fails: &'static [Program],
}

/// Two rows.
fn rows() -> Vec<Tensor> {
    vec![arange(8), arange(8).neg()]
}

fn tables() -> Vec<Tensor> {
    vec![arange(9).reshape([3i64, 3]), arange(9).neg().reshape([3i64, 3])]
}

fn whole_numbers() -> Vec<Tensor> {
    rows().iter().map(|t| t.to_dtype(I64)).collect()
}

fn fresh(t: &Tensor) -> Tensor {
    t.clone_as(MemoryFormat::Contiguous)
}

fn call(op: &str, args: maquette_ops::Args) -> Tensor {
    maquette_ops::call(op, args).unwrap().remove(0).tensor().unwrap().clone()
}

/// `t = neg(x)`, in which `stored` is written to `t[2:6]`.
fn stored(x: &[Tensor]) -> Tensor {
    let t = x[0].neg();
    t.slice(0, 2..6).copy_(&x[1].slice(0, 0..4));
    t
}

const PAIRS: &[Pair] = &[
    Pair {
        rule: "functional-variant",
        after: &[],
        inputs: rows,
        holds: ("t = neg(x); t.add_(y); return t", |x| x[0].neg().add_(&x[1])),
        fails: &[("nothing is mutated: return neg(x) + y", |x| x[0].neg() + &x[1])],
    },
    Pair {
        rule: "same-elements",
        after: &[],
        inputs: rows,
        holds: ("return clone(x)", |x| fresh(&x[0])),
        fails: &[
            ("other elements: return x.to(f64)", |x| x[0].to_dtype(F64)),
            ("another operator: return exp(x)", |x| x[0].exp()),
        ],
    },
    Pair {
        rule: "round-trip",
        after: &[],
        inputs: rows,
        holds: ("return x.to(f64).to(f32)", |x| x[0].to_dtype(F64).to_dtype(F32)),
        fails: &[("it holds less: return x.to(f16).to(f32)", |x| x[0].to_dtype(F16).to_dtype(F32))],
    },
    Pair {
        rule: "identity-operand",
        after: &[],
        inputs: rows,
        holds: ("return x * 1", |x| &x[0] * 1.0),
        fails: &[("-0.0 + 0.0 is 0.0: return x + 0.0", |x| &x[0] + 0.0)],
    },
    Pair {
        rule: "involution-or-idempotent",
        after: &[],
        inputs: rows,
        holds: ("return neg(neg(x))", |x| x[0].neg().neg()),
        fails: &[("two operators: return relu(neg(x))", |x| x[0].neg().relu())],
    },
    Pair {
        rule: "same-operands",
        after: &[],
        inputs: rows,
        holds: ("return maximum(x, x)", |x| call("aten::maximum", args![&x[0], &x[0]])),
        fails: &[("two operands: return maximum(x, y)", |x| {
            call("aten::maximum", args![&x[0], &x[1]])
        })],
    },
    Pair {
        rule: "ignored-operand",
        after: &["functional-variant"],
        inputs: rows,
        holds: ("return exp(x).fill_(2)", |x| x[0].exp().fill_(2.0)),
        fails: &[("it is looked at: return exp(x).mul_(2)", |x| x[0].exp().mul_(2.0))],
    },
    Pair {
        rule: "commute",
        after: &[],
        inputs: whole_numbers,
        holds: ("return (x + y) * (y + x)", |x| (&x[0] + &x[1]) * (&x[1] + &x[0])),
        fails: &[
            ("order matters: return (x - y) * (y - x)", |x| (&x[0] - &x[1]) * (&x[1] - &x[0])),
            ("and of two NaNs: the sums of floats", |x| {
                let [x, y] = [x[0].to_dtype(F32), x[1].to_dtype(F32)];
                (&x + &y) * (&y + &x)
            }),
        ],
    },
    Pair {
        rule: "whole-view",
        after: &["same-elements", "view-view"],
        inputs: tables,
        holds: ("return neg(clone(x.t()).t())", |x| fresh(&x[0].t()).t().neg()),
        fails: &[("all of it in another order: return neg(clone(x.t()))", |x| {
            fresh(&x[0].t()).neg()
        })],
    },
    Pair {
        rule: "view-view",
        after: &["same-elements"],
        inputs: tables,
        holds: ("return neg(clone(x.t())[1])", |x| fresh(&x[0].t()).select(0, 1).neg()),
        fails: &[("no strides say where: return neg(clone(x.t()).view(9))", |x| {
            fresh(&x[0].t()).view([9i64]).neg()
        })],
    },
    Pair {
        rule: "store-to-load",
        after: &[],
        inputs: rows,
        holds: ("t[2:6].copy_(y); return neg(t[3:5])", |x| stored(x).slice(0, 3..5).neg()),
        fails: &[("more is seen: t[2:6].copy_(y); return neg(t[3:7])", |x| {
            stored(x).slice(0, 3..7).neg()
        })],
    },
    Pair {
        rule: "load-past-disjoint-store",
        after: &[],
        inputs: rows,
        holds: ("t[2:6].copy_(y); return neg(t[6:8])", |x| stored(x).slice(0, 6..8).neg()),
        fails: &[("one stored element is seen: t[2:6].copy_(y); return neg(t[5:8])", |x| {
            stored(x).slice(0, 5..8).neg()
        })],
    },
    Pair {
        rule: "view-of-store",
        after: &["load-past-disjoint-store"],
        inputs: rows,
        holds: ("t[0:1].fill_(0); t[2:6].copy_(y); return neg(t[1:7])", |x| {
            let t = x[0].neg();
            t.slice(0, 0..1).fill_(0.0);
            t.slice(0, 2..6).copy_(&x[1].slice(0, 0..4));
            t.slice(0, 1..7).neg()
        }),
        fails: &[
            ("not all of the store is seen: t[2:6].copy_(y); return neg(t[3:8])", |x| {
                stored(x).slice(0, 3..8).neg()
            }),
            ("it is seen twice: t[2:6].copy_(y); return neg(t.expand(2, 8))", |x| {
                stored(x).expand([2i64, 8]).neg()
            }),
        ],
    },
    Pair {
        rule: "whole-store",
        after: &[],
        inputs: tables,
        holds: ("t.t().copy_(y); return t", |x| {
            let t = x[0].neg();
            t.t().copy_(&x[1]);
            t
        }),
        fails: &[("two rows of it: t.t()[0:2].copy_(y); return t", |x| {
            let t = x[0].neg();
            t.t().slice(0, 0..2).copy_(&x[1].slice(0, 0..2));
            t
        })],
    },
    Pair {
        rule: "idempotent-store",
        after: &["functional-variant", "same-elements"],
        inputs: rows,
        holds: ("c = clone(t[0:3]); t[0:3].copy_(c); return t", |x| {
            let t = x[0].neg();
            let c = fresh(&t.slice(0, 0..3));
            t.slice(0, 0..3).copy_(&c);
            t
        }),
        fails: &[
            (
                "it is there no more: c = clone(t[0:3]); t[2:5].fill_(0); t[0:3].copy_(c); return \
                    t",
                |x| {
                    let t = x[0].neg();
                    let c = fresh(&t.slice(0, 0..3));
                    t.slice(0, 2..5).fill_(0.0);
                    t.slice(0, 0..3).copy_(&c);
                    t
                },
            ),
            ("it is elsewhere: c = clone(t[1:4]); t[0:3].copy_(c); return t", |x| {
                let t = x[0].neg();
                let c = fresh(&t.slice(0, 1..4));
                t.slice(0, 0..3).copy_(&c);
                t
            }),
        ],
    },
    Pair {
        rule: "dead-store",
        after: &[],
        inputs: rows,
        holds: ("t[1:3].fill_(0); t[0:4].copy_(y); return t", |x| {
            let t = x[0].neg();
            t.slice(0, 1..3).fill_(0.0);
            t.slice(0, 0..4).copy_(&x[1].slice(0, 0..4));
            t
        }),
        fails: &[("one element of it is left: t[3:5].fill_(0); t[0:4].copy_(y); return t", |x| {
            let t = x[0].neg();
            t.slice(0, 3..5).fill_(0.0);
            t.slice(0, 0..4).copy_(&x[1].slice(0, 0..4));
            t
        })],
    },
    Pair {
        rule: "store-through-view",
        after: &["store-to-load"],
        inputs: rows,
        holds: ("t[2:6].copy_(y); t[3:5].fill_(0); return neg(t[2:6])", |x| {
            let t = stored(x);
            t.slice(0, 3..5).fill_(0.0);
            t.slice(0, 2..6).neg()
        }),
        fails: &[(
            "one element lies beside it: t[2:6].copy_(y); t[5:7].fill_(0); return neg(t[2:6])",
            |x| {
                let t = stored(x);
                t.slice(0, 5..7).fill_(0.0);
                t.slice(0, 2..6).neg()
            },
        )],
    },
    Pair {
        rule: "nested-store",
        after: &["functional-variant", "same-elements"],
        inputs: rows,
        holds: ("c = clone(t[1:7]); c[1:3].fill_(9); t[1:7].copy_(c); return t", |x| {
            let t = x[0].neg();
            let c = fresh(&t.slice(0, 1..7));
            c.slice(0, 1..3).fill_(9.0);
            t.slice(0, 1..7).copy_(&c);
            t
        }),
        fails: &[(
            "the rest is from elsewhere: c = clone(t[0:6]); c[1:3].fill_(9); t[1:7].copy_(c); \
                return t",
            |x| {
                let t = x[0].neg();
                let c = fresh(&t.slice(0, 0..6));
                c.slice(0, 1..3).fill_(9.0);
                t.slice(0, 1..7).copy_(&c);
                t
            },
        )],
    },
    Pair {
        rule: "full-cover-stores",
        after: &["functional-variant"],
        inputs: rows,
        holds: ("t = exp(x); t[0:3].copy_(y); t[3:8].copy_(y); return t", |x| {
            let t = x[0].exp();
            t.slice(0, 0..3).copy_(&x[1].slice(0, 2..5));
            t.slice(0, 3..8).copy_(&x[1].slice(0, 0..5));
            t
        }),
        fails: &[(
            "one element is left: t = exp(x); t[0:3].copy_(y); t[3:7].copy_(y); return t",
            |x| {
                let t = x[0].exp();
                t.slice(0, 0..3).copy_(&x[1].slice(0, 2..5));
                t.slice(0, 3..7).copy_(&x[1].slice(0, 0..4));
                t
            },
        )],
    },
];

#[test]
fn every_rule() {
    let equations: Vec<_> = rules().collect();
    assert_eq!(
        PAIRS.iter().map(|p| p.rule).collect::<Vec<_>>(),
        equations.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    );
    let mut book = String::new();
    for (Pair { rule, after, inputs, holds, fails }, (_, equation)) in PAIRS.iter().zip(equations) {
        let ways = || {
            let all = Options::new().disable_forwarding(true);
            [all.clone().only(after.iter().chain([rule]).copied()), all]
        };
        writeln!(book, "# {rule}: {equation}\n").unwrap();
        let (title, program) = holds;
        for (f, way) in
            check_under(ways(), |x| program(&x), inputs).iter().zip(["alone", "among all"])
        {
            assert!(
                uses_of(f, rule) > 0,
                "{rule} does not hold, {way}: {title}\n{:?}\n{}",
                f.stats,
                f.graph
            );
            if way == "alone" {
                writeln!(book, "holds: {title}\n{}\n", f.graph).unwrap();
            }
        }
        for (title, program) in *fails {
            for (f, way) in
                check_under(ways(), |x| program(&x), inputs).iter().zip(["alone", "among all"])
            {
                assert_eq!(
                    uses_of(f, rule),
                    0,
                    "{rule} holds, {way}: {title}\n{:?}\n{}",
                    f.stats,
                    f.graph
                );
                if way == "among all" {
                    writeln!(book, "does not: {title}\n{}\n", f.graph).unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(book);
}
