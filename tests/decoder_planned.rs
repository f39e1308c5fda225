//! The decoder's step as a graph of values, run in planned memory: what it stores in its caches is
//! all that it copies.

#[path = "../examples/decoder/llama.rs"]
#[allow(dead_code)]
mod llama;

use llama::{Cache, Config, Llama};
use maquette::interp::{Execution, Interpreter};
use maquette::library::Facts;
use maquette::prelude::*;
use maquette::rewrite::{ExecutionMode, Options, functionalize_in_place};

const CONFIG: Config = Config {
    vocabulary: 100,
    layers: 2,
    width: 32,
    hidden: 64,
    heads: 4,
    kv_heads: 2,
    max_length: 64,
};

fn inputs(tokens: &[i64], caches: &[Cache]) -> Vec<Value> {
    let tensors = caches.iter().flat_map(|c| [&c.keys, &c.values]);
    std::iter::once(Tensor::from_vec(tokens.to_vec(), [tokens.len() as i64]))
        .chain(tensors.cloned())
        .map(Value::Tensor)
        .collect()
}

#[test]
fn the_cache_is_not_copied() {
    let llama = Llama::random(CONFIG, 13, Device::Cpu);
    let (length, capacity) =
        (Dim::new("length").min(1).max(CONFIG.max_length), Dim::new("capacity").min(1));
    let caches = 1..=2 * CONFIG.layers as usize;
    let options = caches.fold(TraceOptions::new().dynamic(0, 0, length), |o, input| {
        o.dynamic(input, 1, capacity.clone())
    });
    let sample = (Tensor::from([0i64; 3]), llama.caches(8));
    let step = options
        .name("step")
        .trace(|(tokens, caches): (Tensor, Vec<Cache>)| llama.step(&tokens, &caches), sample)
        .unwrap();

    let in_place = functionalize_in_place(step.graph(), &Facts, &Options::new()).unwrap();
    let ExecutionMode::Buffered(functional, plan) = &in_place else {
        panic!("no plan is known to copy no more than the program")
    };
    functional.graph.verify().unwrap();
    insta::assert_snapshot!(functional.graph);

    // one step after another, on caches of two sizes: the bits of the program itself, and one row
    // copied for each cache at most
    for capacity in [6, 20] {
        let (eager, planned) = (llama.caches(capacity), llama.caches(capacity));
        let row = (CONFIG.kv_heads * CONFIG.width / CONFIG.heads) as u64;
        for n in 1..=6 {
            let tokens: Vec<i64> = (0..n).map(|i| i * 7 % 100).collect();
            let expected = llama.step(&Tensor::from_vec(tokens.clone(), [n]), &eager).unwrap();
            let Execution { results, traffic } =
                Interpreter::new(&in_place).run(&inputs(&tokens, &planned)).unwrap();
            let traffic = traffic.unwrap();
            let found =
                results.iter().flat_map(Value::tensors).next().unwrap().to_vec::<f32>().unwrap();
            assert_eq!(found, expected.to_vec::<f32>().unwrap(), "at {n} tokens");
            assert!(
                traffic.copied <= 2 * CONFIG.layers as u64 * row,
                "{} elements are copied at {n} tokens\n{}",
                traffic.copied,
                plan.display(&functional.graph)
            );
        }
        for (a, b) in eager.iter().zip(&planned) {
            assert_eq!(a.keys.to_vec::<f32>().unwrap(), b.keys.to_vec::<f32>().unwrap());
            assert_eq!(a.values.to_vec::<f32>().unwrap(), b.values.to_vec::<f32>().unwrap());
        }
    }
}
