//! The text form of signatures: printing and parsing are inverse, and errors name the line.

use maquette_driver::{InputKind, InputSpec, OutputKind, OutputSpec, Signature};
use proptest::prelude::*;

/// Names and values, of which some could be read as something else.
fn text() -> impl Strategy<Value = String> {
    let tricky = [
        "layers.0.weight",
        "%p_layers_0_weight",
        "%add at [%n, 3]",
        "alias",
        "mutation",
        "of",
        "buffer",
        "",
        " ",
        "a, b",
        "a: b",
        "x, unused",
        "x, tied to y",
        "\"quoted\"",
        "the string \"a\\n\"",
        "two\nlines",
        "größe",
    ];
    prop_oneof![
        prop::sample::select(tricky.to_vec()).prop_map(str::to_owned),
        "\\PC{0,8}",
        ".{0,8}"
    ]
}

fn signature() -> impl Strategy<Value = Signature> {
    let input = (0..6usize, text(), text(), prop::option::of(text()), any::<bool>());
    let input = input.prop_map(|(kind, name, value, tied_to, used)| InputSpec {
        kind: InputKind::ALL[kind],
        name,
        value,
        tied_to,
        used,
    });
    let output = (0..5usize, text(), text());
    let output = output.prop_map(|(kind, name, value)| OutputSpec {
        kind: OutputKind::ALL[kind],
        name,
        value,
    });
    let lists = (prop::collection::vec(input, 0..5), prop::collection::vec(output, 0..5));
    lists.prop_map(|(inputs, outputs)| Signature { inputs, outputs })
}

#[test]
fn plain_names_are_not_quoted() {
    let text = "inputs
  parameter layers.0.weight: %p_layers_0_weight, tied to head.weight, unused
  captured buffer c0: %c0
  constant input scale: the float 0.5
  memory of x, y: %memory
outputs
  buffer mutation statistics.calls: %add
  output: %y at [%n, 3]
  output 0.x: %z
  output alias: %x";
    let signature: Signature = text.parse().unwrap();
    assert_eq!(signature.to_string(), text);
    assert_eq!((signature.inputs.len(), signature.outputs.len()), (4, 4));
}

#[test]
fn errors_name_the_line() {
    let cases = [
        ("", "line 0: the text ends before `outputs`"),
        ("outputs", "line 1: expected `inputs`"),
        ("inputs\n  input x: %x", "line 2: the text ends before `outputs`"),
        ("inputs\n  tensor x: %x\noutputs", "line 2: expected an input: `KIND NAME: VALUE`"),
        ("inputs\n  input x: %x, tied to \noutputs", "line 2: expected an input"),
        ("inputs\n  input \"x: %x\noutputs", "line 2: expected an input"),
        ("inputs\noutputs\n  output x %x", "line 3: expected an output: `KIND NAME: VALUE`"),
        ("inputs\noutputs\n\n  output: %x", "line 3: expected an output"),
    ];
    for (text, expected) in cases {
        let error = Signature::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printing_and_parsing_are_inverse(signature in signature()) {
        let text = signature.to_string();
        prop_assert_eq!(Signature::parse(&text), Ok(signature), "{}", text);
    }

    #[test]
    fn any_text_never_panics(text in ".{0,60}") {
        let _ = Signature::parse(&text);
        let _ = Signature::parse(&format!("inputs\n  input {text}\noutputs\n  output {text}"));
    }
}
