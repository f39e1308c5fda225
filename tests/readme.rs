//! The README's program prints what the README says. (That it compiles and runs is a doctest.)

use maquette::prelude::*;

#[path = "../examples/decoder/main.rs"]
mod decoder;

#[custom_op("readme::numpy_sin")]
fn numpy_sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

#[register_fake(numpy_sin)]
fn numpy_sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

#[test]
fn the_graph_is_as_printed() {
    let readme = include_str!("../README.md");
    let (_, after) = readme.split_once("```text\n").unwrap();
    let (printed, _) = after.split_once("```").unwrap();
    let model = |(x, w): (Tensor, Tensor)| numpy_sin(&x.matmul(&w)).relu() + 1.0;
    let inputs = (Tensor::zeros([2, 2], DType::F32), Tensor::zeros([2, 2], DType::F32));
    let traced = TraceOptions::new()
        .dynamic(0, 0, Dim::new("batch").min(1))
        .names(["x", "w"])
        .trace(model, inputs)
        .unwrap();
    assert_eq!(traced.graph().to_string(), printed.trim_end());
    // `dot -Tsvg docs/pictures/readme.dot -o docs/pictures/readme.svg` draws the picture
    let picture = include_str!("../docs/pictures/readme.dot");
    assert_eq!(traced.graph().to_dot(&library::Facts), picture);
}

#[test]
fn the_output_of_the_decoder_matches_the_readme() {
    let readme = include_str!("../README.md");
    let (_, after) = readme.split_once("--example decoder\n```\n\nprints\n\n```text\n").unwrap();
    let (printed, _) = after.split_once("```").unwrap();
    // how far the scores are apart, and times, are the machine's affair
    let without_numbers = |text: &str| -> Vec<String> {
        let cut = |l: &str| {
            let numbers = ["scores: ", "step: "].iter().find_map(|what| l.split_once(what));
            numbers.map_or(l, |(before, _)| before).trim_end().to_owned()
        };
        text.lines().map(cut).collect()
    };
    assert_eq!(without_numbers(&decoder::report().unwrap()), without_numbers(printed));
}

#[test]
fn the_model_is_got_as_ci_gets_it() {
    let (readme, ci) = (include_str!("../README.md"), include_str!("../.ci/run"));
    let commands: Vec<&str> = readme.lines().filter(|l| l.contains("minilm-package")).collect();
    assert_eq!(commands.len(), 3);
    for command in commands {
        assert!(ci.lines().any(|l| l.trim() == command), "{command}");
    }
}

#[test]
fn every_example_is_named_and_every_named_example_exists() {
    let readme = include_str!("../README.md");
    let mut named: Vec<&str> = readme
        .lines()
        .filter_map(|l| l.strip_prefix("| `cargo run --release --example ")?.split('`').next())
        .collect();
    named.sort_unstable();
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut there: Vec<String> = std::fs::read_dir(examples)
        .unwrap()
        .map(|e| e.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    there.sort();
    assert_eq!(named, there);
}
