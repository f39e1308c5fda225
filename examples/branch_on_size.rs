//! Three ways to ask about a size while a program is traced: guard, check, statically known.

use maquette::prelude::*;

/// Takes the branch of the sample; the graph refuses inputs of the other branch.
fn guarded(x: Tensor) -> Result<Tensor> {
    if x.size(0).gt(4).guard()? { Ok(x.relu()) } else { Ok(x.neg()) }
}

/// Asserts the condition in the graph.
fn checked(x: Tensor) -> Result<Tensor> {
    (x.size(0) % 2).eq(0).check("the elements come in pairs")?;
    Ok(x.view([x.size(0).floor_div(2), 2.into()]))
}

/// Asks what is proved, and records nothing.
fn known(x: Tensor) -> Tensor {
    if x.size(0).eq(1).statically_known() == Some(true) { x } else { x * 2.0 }
}

pub fn report() -> Result<String> {
    let options = TraceOptions::symbolic().names(["x"]);
    let sample = || Tensor::from([1.0f32; 6]);
    let mut out = String::new();
    for traced in [
        options.clone().name("guarded").trace(guarded, sample())?,
        options.clone().name("checked").trace(checked, sample())?,
        options.clone().name("known").trace(known, sample())?,
    ] {
        let run = traced.run(Tensor::from([1.0f32; 3]));
        let outcome = match &run {
            Ok(y) => y.to_string(),
            Err(e) => format!("refused: {e}"),
        };
        out += &format!("{traced}\nwith 3 elements: {outcome}\n\n");
    }
    Ok(out)
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
