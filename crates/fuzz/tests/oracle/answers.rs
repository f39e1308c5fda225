//! Statements that ask for state, and writes that are refused: what each mode makes of them.

use maquette_fuzz::oracle::{
    Eager, HANDLED_WRITE, Mode, STATE, TestProgram, Text, Verdict, check, generate::generate,
    modes, register,
};

/// The names of the modes that answer, and of those that refuse a program for this reason.
#[track_caller]
fn answering(program: &TestProgram, why: &'static str) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut answer, mut refuse) = (Vec::new(), Vec::new());
    for mode in modes() {
        match check(program, &[mode]).unwrap() {
            Verdict::Agree => answer.push(mode.name()),
            Verdict::Refused(reason) if reason == why => refuse.push(mode.name()),
            other => panic!("{}: {other:?}\n{program}", mode.name()),
        }
    }
    (answer, refuse)
}

/// A question of a program whose input begins at an offset and was written before: of the input, of
/// a view of it, of a result, and of a tensor from outside.
#[test]
fn questions_about_state_are_answered_or_refused() {
    register().unwrap();
    let of = ["%x", "%row", "%own", "None"];
    // for each question, the tensors of which traces answer it
    let answered: [(&str, &[&str]); 7] = [
        ("version", &["%own"]),
        ("is_leaf", &["%own"]),
        ("requires_grad", &["%own"]),
        ("strides", &["%x", "%row", "%own", "None"]),
        ("storage_offset", &["None"]),
        ("ok", &["%x", "%row", "%own"]),
        ("text", &["%x", "%row", "%own"]),
    ];
    for (number, (question, answered)) in answered.into_iter().enumerate() {
        for of in of {
            let program: TestProgram = format!(
                "#! memory 0: f32 = 1.0 2.0 3.0 4.0\n#! input x: memory 0 offset 2\n\
                 graph program(%x: f32[2, 3]) -> (f32[2, 3])\n{{\n  \
                 %w: f32[2, 3] = aten::add_.Scalar(%x, 1.0)\n  \
                 %row: f32[3] offset 3 = aten::select.int(%x, 0, 1)\n  \
                 %own: f32[2, 3] = aten::neg(%x)\n  \
                 %y: f32[2, 3] = oracle::asks(%own, {of}, {number})\n  return %y\n}}\n"
            )
            .parse()
            .unwrap();
            let (answer, refuse) = answering(&program, STATE);
            let is_answered = answered.contains(&of);
            // exports hold inputs as buffers, which are from outside of the trace
            let traces = |names: &[&str]| names.contains(&"traced") && names.contains(&"compiled");
            assert!(
                traces(if is_answered { &answer } else { &refuse }),
                "{question} of {of}: answered by {answer:?}, refused by {refuse:?}"
            );
            assert!(answer.contains(&"eager") && answer.contains(&"text"), "{question} of {of}");
        }
    }
}

/// In text mode, the kernel of the statement makes no write that must be refused.
#[test]
fn refused_writes_change_nothing_in_any_mode() {
    register().unwrap();
    let untraced: [&dyn Mode; 2] = [&Eager, &Text];
    // the written tensor, the other one, and whether each form of a write is accepted
    let rows = [
        ("f32[2, 3]", "f32[3]", [true, true, true]),
        ("f32[2, 3]", "f32[2]", [false, false, false]),
        ("f32[2, 3]", "f32[2, 3]", [true, true, false]),
        ("i64[2, 3]", "f32[3]", [true, false, true]),
        ("bool[2, 1]", "i64[2, 1]", [true, false, false]),
        ("f32[0, 3]", "f32[3]", [true, true, false]),
        ("f32[]", "f32[1]", [false, false, false]),
    ];
    for (x, y, accepted) in rows {
        for (form, accepted) in accepted.into_iter().enumerate() {
            let program: TestProgram = format!(
                "graph program(%x: {x}, %y: {y}) -> ({x})\n{{\n  \
                 oracle::attempts_(%x, %y, {form})\n  return %x\n}}\n"
            )
            .parse()
            .unwrap();
            assert_eq!(check(&program, &untraced).unwrap(), Verdict::Agree, "{program}");
            let (answer, refuse) = answering(&program, HANDLED_WRITE);
            let expected: &[&str] = if accepted { &[] } else { &["eager", "text"] };
            match accepted {
                true => assert!(refuse.is_empty(), "{refuse:?} refuse\n{program}"),
                false => assert_eq!(answer, expected, "{program}"),
            }
        }
    }
}

#[test]
fn random_programs_ask_and_handle_refusals() {
    let all: Vec<TestProgram> =
        (0..3000).map(|index| generate(1, index, 12).unwrap().program).collect();
    let with = |op: &str| {
        let calls = |p: &&TestProgram| p.graph.nodes().any(|n| p.graph.op_name(n) == op);
        all.iter().filter(calls).collect::<Vec<_>>()
    };
    let (questions, writes) = (with("oracle::asks"), with("oracle::attempts_"));
    assert!(questions.len() > 20 && writes.len() > 5, "{} {}", questions.len(), writes.len());
    let traced: Vec<&dyn Mode> =
        modes().into_iter().filter(|m| m.name() == "traced").map(|m| m as &dyn Mode).collect();
    let verdicts = questions.iter().map(|p| check(p, &traced).unwrap());
    let (answered, refused): (Vec<_>, Vec<_>) = verdicts.partition(|v| *v == Verdict::Agree);
    assert!(answered.len() > 5 && refused.len() > 5, "{} {}", answered.len(), refused.len());
}
