use super::*;
use crate::Loc;
use crate::sym::{Range, Scope};
use proptest::prelude::*;

const ANY: Range = Range { lo: 0, hi: i64::MAX };

/// A size known before the graph runs, with an example value.
fn backed(scope: &Scope, name: &str, hint: i64) -> SymInt {
    scope.backed(Some(name), ANY, hint).unwrap()
}

fn unbacked(scope: &Scope) -> SymInt {
    scope.unbacked(ANY, "mylib::nonzero", Loc::caller())
}

fn number(n: i64) -> SymInt {
    SymInt::from(n)
}

fn print(values: &[SymInt]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn guards(scope: &Scope) -> Vec<String> {
    scope.with(|data| {
        data.guards.iter().map(|g| data.table.display_bool(g.cond).to_string()).collect()
    })
}

fn assertions(scope: &Scope) -> Vec<String> {
    scope.with(|data| {
        data.assertions.iter().map(|a| data.table.display_bool(a.cond).to_string()).collect()
    })
}

#[test]
fn proved_broadcasts_take_no_guard() {
    let scope = Scope::new();
    let (batch, u) = (backed(&scope, "batch", 8), unbacked(&scope));
    assert_eq!(
        print(&broadcast(&[&[batch, number(10)], &[number(10)], &[]]).unwrap()),
        "batch, 10"
    );
    assert_eq!(
        print(&broadcast(&[&[number(1), number(3)], &[batch, number(1)]]).unwrap()),
        "batch, 3"
    );
    assert_eq!(
        print(&broadcast(&[&[batch + 1], &[batch + 1], &[number(1)]]).unwrap()),
        "batch + 1"
    );
    assert_eq!(
        print(&broadcast(&[&[u, batch], &[number(1), batch], &[u, number(1)]]).unwrap()),
        "u0, batch"
    );
    assert!(guards(&scope).is_empty() && assertions(&scope).is_empty());
}

#[test]
fn backed_sizes_are_guarded_on_their_example_values() {
    let scope = Scope::new();
    let [a, b, one, c] =
        [("a", 8), ("b", 8), ("one", 1), ("c", 5)].map(|(name, hint)| backed(&scope, name, hint));
    assert_eq!(print(&broadcast(&[&[a], &[b]]).unwrap()).len(), 1);
    assert_eq!(guards(&scope), ["a == b"]);
    assert_eq!(print(&broadcast(&[&[one], &[c]]).unwrap()), "c");
    assert_eq!(guards(&scope)[1..], ["one == 1"]);
    assert_eq!(print(&broadcast(&[&[c], &[number(5)]]).unwrap()), "5");
    assert_eq!(guards(&scope)[2..], ["c == 5"]);
    assert!(matches!(broadcast(&[&[a], &[number(3)]]), Err(TypingError::Broadcast { .. })));
    assert_eq!(guards(&scope).len(), 3);
}

#[test]
fn sizes_that_depend_on_data_do_not_broadcast() {
    let scope = Scope::new();
    let (batch, u) = (backed(&scope, "batch", 8), unbacked(&scope));
    assert_eq!(print(&broadcast(&[&[u], &[batch]]).unwrap()), "batch");
    assert_eq!((guards(&scope), assertions(&scope)), (vec![], vec!["batch == u0".to_owned()]));
    // The equality is known by now, so no assertion is added.
    broadcast(&[&[u], &[batch], &[number(1)]]).unwrap();
    assert_eq!((guards(&scope).len(), assertions(&scope).len()), (0, 1));
    let error = broadcast(&[
        &[scope.unbacked(Range { lo: 4, hi: 9 }, "mylib::nonzero", Loc::caller())],
        &[number(3)],
    ])
    .unwrap_err();
    assert!(matches!(error, TypingError::Broadcast { .. }), "{error}");
}

#[test]
fn density_of_symbolic_shapes() {
    let scope = Scope::new();
    let (s, u) = (backed(&scope, "s", 8), unbacked(&scope));
    let sizes = [number(2), u, s, number(4)];
    let strides = contiguous_strides(&sizes);
    assert!(is_contiguous(&sizes, &strides).unwrap());
    assert!(is_contiguous(&sizes, &[u * s * 4, s * 4, number(4), number(1)]).unwrap());
    assert!(is_non_overlapping_and_dense(&sizes, &strides).unwrap());
    let transposed = [sizes[2], sizes[3]];
    assert!(is_non_overlapping_and_dense(&transposed, &[number(1), s]).unwrap());
    assert!(guards(&scope).is_empty() && assertions(&scope).is_empty());
    assert!(!is_contiguous(&transposed, &[number(1), s]).unwrap());
    assert_eq!(
        guards(&scope).len(),
        2,
        "that there is more than one element, and that there is one"
    );
    assert!(is_contiguous(&[u, number(4)], &[number(1), u]).is_err());
}

#[test]
fn undecided_strides_are_guarded_at_the_callers_line() {
    let scope = Scope::new();
    let [p, q] = [("p", 7), ("q", 9)].map(|(name, hint)| backed(&scope, name, hint));
    let sizes = [number(2), number(3)];
    let line = line!() + 1;
    let strides = elementwise_strides(&sizes, &[(&sizes, &[p, q])]).unwrap();
    assert_eq!(print(&strides), "1, 2");
    assert_eq!(guards(&scope), ["p < q"]);
    assert_eq!(scope.with(|data| data.guards[0].loc), Loc { file: file!(), line });
    let u = unbacked(&scope);
    let error = elementwise_strides(&sizes, &[(&sizes, &[u, p])]).unwrap_err();
    assert!(error.to_string().contains("mylib::nonzero"), "{error}");
}

/// Example sizes, an order of the dimensions in memory, and whether the sizes depend on data.
fn permuted() -> impl Strategy<Value = (Vec<i64>, Vec<usize>, bool)> {
    (1usize..5).prop_flat_map(|rank| {
        (
            proptest::collection::vec(2i64..6, rank),
            Just((0..rank).collect::<Vec<_>>()).prop_shuffle(),
            any::<bool>(),
        )
    })
}

proptest! {
    #[test]
    fn symbolic_strides_are_those_of_the_numbers(
        (sizes, order, depends_on_data) in permuted(),
        contiguous_first in any::<bool>(),
        broadcast_dim in 0usize..4,
    ) {
        let scope = Scope::new();
        let symbols: Dims = sizes
            .iter()
            .enumerate()
            .map(|(i, &n)| match depends_on_data {
                true => unbacked(&scope),
                false => backed(&scope, &format!("n{i}"), n),
            })
            .collect();
        let plain_sizes = symbolic(&sizes);
        let strides_of = |sizes: &[SymInt]| {
            let permuted = dense_strides(sizes, order.iter().copied());
            let contiguous = contiguous_strides(sizes);
            // One operand is broadcast along a dimension.
            let mut stretched: Dims = sizes.into();
            if let Some(size) = stretched.get_mut(broadcast_dim) {
                *size = number(1);
            }
            let stretched_strides = contiguous_strides(&stretched);
            let mut operands =
                vec![(sizes, &permuted[..]), (&stretched[..], &stretched_strides[..])];
            if contiguous_first {
                operands.insert(0, (sizes, &contiguous[..]));
            }
            elementwise_strides(sizes, &operands).unwrap()
        };
        let (found, expected) = (strides_of(&symbols), strides_of(&plain_sizes));
        prop_assert_eq!(guards(&scope), Vec::<String>::new());
        prop_assert_eq!(assertions(&scope), Vec::<String>::new());
        let value = |e: SymInt| {
            let e = scope.lower(e).unwrap();
            let table = scope.with(|data| data.table.clone());
            let size_of = |s| table.symbols().position(|symbol| symbol == s).map(|i| sizes[i]);
            table.eval(e, &size_of).unwrap()
        };
        let found: Vec<i64> = found.iter().map(|&s| value(s)).collect();
        prop_assert_eq!(found, plain(&expected).unwrap().to_vec());
    }
}
