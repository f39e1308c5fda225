//! A real model gives the vectors that PyTorch computed for it, at every batch and length, from one
//! trace. Where the model's files are not (see `.ci/run`), nothing is tested.

use maquette::io::Weights;
use maquette::prelude::*;
use minilm::attention::Attention;
use minilm::bert::Bert;
use minilm::tokens::{Tokens, Words};

#[path = "../src/main.rs"]
mod minilm;

/// What vectors may differ by, element by element.
const TOLERANCE: f32 = 1e-5;

struct Fixture {
    words: Words,
    bert: Bert,
    sentences: Vec<String>,
    /// `[10, 256]`
    tokens: Tokens,
    /// `[10, 384]`
    embeddings: Tensor,
}

fn fixture() -> Option<Fixture> {
    let folder = minilm::default_folder();
    if !folder.join("model.safetensors").is_file() {
        eprintln!("skipped: there is no model in {}", folder.display());
        return None;
    }
    let expected = Weights::from_safetensors(include_bytes!(
        "../../../tests/data/minilm/expected.safetensors"
    ))
    .unwrap();
    Some(Fixture {
        words: Words::load(&folder, minilm::MAX_TOKENS).unwrap(),
        bert: Bert::load(&folder, Device::Cpu).unwrap(),
        sentences: serde_json::from_str(include_str!("../../../tests/data/minilm/sentences.json"))
            .unwrap(),
        tokens: Tokens {
            ids: expected.get("input_ids").unwrap(),
            mask: expected.get("attention_mask").unwrap(),
        },
        embeddings: expected.get("embeddings").unwrap(),
    })
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.sizes_i64().unwrap(), expected.sizes_i64().unwrap(), "{what}");
    let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(
        worst <= TOLERANCE && found.iter().all(|x| x.is_finite()),
        "{what}: the largest difference is {worst:e}"
    );
}

#[test]
fn tokens_are_those_of_the_original() {
    let Some(f) = fixture() else { return };
    let sentences: Vec<&str> = f.sentences.iter().map(String::as_str).collect();
    let found = f.words.encode(&sentences).unwrap();
    assert_eq!(
        found.ids.sizes_i64().unwrap(),
        [10, 256],
        "the longest sentence is cut to 256 tokens"
    );
    assert_eq!(found.ids.to_vec::<i64>().unwrap(), f.tokens.ids.to_vec::<i64>().unwrap());
    assert_eq!(found.mask.to_vec::<i64>().unwrap(), f.tokens.mask.to_vec::<i64>().unwrap());
}

#[test]
fn vectors_are_pytorchs_at_every_size() {
    let Some(f) = fixture() else { return };
    for attention in [Attention::Builtin, Attention::Opaque] {
        let traced = f.bert.trace(attention).unwrap();
        assert!(traced.graph().guards().is_empty(), "a size was specialised:\n{traced}");
        assert_eq!(
            traced.graph().to_string().matches(" = minilm::attention(").count(),
            if attention == Attention::Opaque { 6 } else { 0 }
        );

        let all = traced.run((f.tokens.ids.clone(), f.tokens.mask.clone())).unwrap();
        assert_close(&all, &f.embeddings, "ten sentences of 256 tokens");

        // batches of one sentence and of three, as long as they need to be
        for chunk in [1, 3] {
            for (i, sentences) in f.sentences.chunks(chunk).enumerate() {
                let sentences: Vec<&str> = sentences.iter().map(String::as_str).collect();
                let Tokens { ids, mask } = f.words.encode(&sentences).unwrap();
                let start = (i * chunk) as i64;
                let expected = f.embeddings.slice(0, start..start + sentences.len() as i64);
                assert_close(
                    &traced.run((ids, mask)).unwrap(),
                    &expected,
                    &format!("{attention:?} {sentences:?}"),
                );
            }
        }
    }
}

#[test]
fn the_graph_does_what_the_program_does() {
    let Some(f) = fixture() else { return };
    let Tokens { ids, mask } =
        f.words.encode(&["one sentence", "and another one, which is longer"]).unwrap();
    for attention in [Attention::Builtin, Attention::Opaque] {
        let eager = f.bert.forward(&ids, &mask, attention);
        let run = f.bert.trace(attention).unwrap().run((ids.clone(), mask.clone())).unwrap();
        assert_eq!(eager.to_vec::<f32>().unwrap(), run.to_vec::<f32>().unwrap(), "{attention:?}");
    }
}

#[test]
fn another_device_gives_the_same_bits() {
    let Some(f) = fixture() else { return };
    let device = Device::test(0);
    let there = Bert::load(&minilm::default_folder(), device).unwrap();
    let tokens = f.words.encode(&["one sentence", "and another one, which is longer"]).unwrap();
    for attention in [Attention::Builtin, Attention::Opaque] {
        let vectors = |bert: &Bert, tokens: &Tokens| {
            let inputs = (tokens.ids.clone(), tokens.mask.clone());
            let eager = bert.forward(&tokens.ids, &tokens.mask, attention);
            let compiled = bert.compile(attention).call(inputs).unwrap();
            assert_eq!([eager.device(), compiled.device()], [tokens.ids.device(); 2]);
            [eager, compiled].map(|t| t.to_vec::<f32>().unwrap())
        };
        let (found, expected) =
            (vectors(&there, &tokens.to_device(device)), vectors(&f.bert, &tokens));
        assert_eq!(found, expected, "{attention:?}");
    }
}
