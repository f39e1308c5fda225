//! Compares what a call mutates and aliases with the declarations of the schema.

use super::calls::{CallRecord, OpUnderTest, Pair, breaks_contract};
use super::report::CheckReport;
use super::sample::{StorageSnapshot, element_starts, indices};
use super::sample_variants::VariantGenerator;
use crate::values::{Bytes, flatten};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Args, Tensor, Value, typed};

/// The arguments that some call changed, over all samples.
#[derive(Default)]
pub(super) struct WrittenArgs(Vec<usize>);

/// Checks one call.
pub(super) fn call(
    subject: &OpUnderTest<'_>,
    ran: &CallRecord,
    sample: &str,
    report: &mut CheckReport,
    written: &mut WrittenArgs,
) {
    for (before, after) in ran.before.iter().zip(&ran.after) {
        for message in undeclared(subject, ran, before, after) {
            report.fail(sample, &message);
        }
        let writers = (0..subject.schema.args.len())
            .filter(|i| subject.op.mutates(*i))
            .filter_map(|i| ran.args.get(i))
            .flat_map(Value::tensors);
        let expected = writers.filter(|t| t.shares_storage(&before.of)).count() as u64;
        let counted = after.version.wrapping_sub(before.version);
        if counted != expected {
            let name = name_of(subject, ran, &before.of);
            report.fail(
                sample,
                &format!(
                    "the version of `{name}` counts {counted} writes, but the schema declares \
                        {expected}"
                ),
            );
        }
    }
    for (i, v) in ran.args.iter().enumerate().filter(|(i, _)| subject.op.mutates(*i)) {
        if !written.0.contains(&i) && v.tensors().any(|t| changed(ran, t)) {
            written.0.push(i);
        }
    }
    for message in undeclared_aliases(subject, ran) {
        report.fail(sample, &message);
    }
    // a kernel cannot replace a handle's metadata, so a difference is a defect of the library
    for (t, before) in ran.args.iter().flat_map(Value::tensors).zip(&ran.metadata) {
        if t.meta().to_string() != *before {
            let (name, now) = (name_of(subject, ran, t), t.meta());
            report.fail(
                sample,
                &format!("the metadata of argument `{name}` changed from {before} to {now}"),
            );
        }
    }
}

/// Warns of arguments that are declared as mutated but were never changed.
pub(super) fn never_written(
    subject: &OpUnderTest<'_>,
    args: &Args,
    written: &WrittenArgs,
    report: &mut CheckReport,
) {
    for (i, a) in subject.schema.args.iter().enumerate() {
        let nonempty =
            args.get(i).is_some_and(|v| v.tensors().any(|t| t.numel().as_i64() != Some(0)));
        if subject.op.mutates(i) && nonempty && !written.0.contains(&i) {
            report.warnings.push(format!(
                "argument `{}` is declared as mutated, but no call changed it",
                a.name
            ));
        }
    }
}

/// The name of the first argument that shares a tensor's storage.
fn name_of(subject: &OpUnderTest<'_>, ran: &CallRecord, t: &Tensor) -> String {
    let named = subject
        .schema
        .args
        .iter()
        .zip(&ran.args)
        .find(|(_, v)| v.tensors().any(|u| u.shares_storage(t)));
    named.map_or_else(String::new, |(a, _)| a.name.clone())
}

/// Whether a call changed an element of a tensor.
fn changed(ran: &CallRecord, t: &Tensor) -> bool {
    let Some(c) = t.meta().concrete() else { return false };
    let here = ran.before.iter().zip(&ran.after).find(|(b, _)| b.of.shares_storage(t));
    here.is_some_and(|(b, a)| {
        let differ = |start: usize| {
            b.bytes.get(start..start + c.width as usize)
                != a.bytes.get(start..start + c.width as usize)
        };
        b.bytes != a.bytes && element_starts(&c).any(differ)
    })
}

/// A mask of the bytes of a storage that belong to some tensors.
fn seen(tensors: &[&Tensor], bytes: usize) -> Vec<bool> {
    let mut mask = vec![false; bytes];
    for c in tensors.iter().filter_map(|t| t.meta().concrete()) {
        for start in element_starts(&c) {
            mask.iter_mut().skip(start).take(c.width as usize).for_each(|b| *b = true);
        }
    }
    mask
}

/// Changes in a storage outside of the tensors that are declared as mutated.
fn undeclared(
    subject: &OpUnderTest<'_>,
    ran: &CallRecord,
    before: &StorageSnapshot,
    after: &StorageSnapshot,
) -> Vec<String> {
    if before.bytes == after.bytes {
        return Vec::new();
    }
    let here = |mutated: bool| {
        let named = subject
            .schema
            .args
            .iter()
            .enumerate()
            .zip(&ran.args)
            .filter(move |((i, _), _)| subject.op.mutates(*i) == mutated);
        let tensors = named.flat_map(|((_, a), v)| v.tensors().map(move |t| (a.name.as_str(), t)));
        tensors.filter(|(_, t)| t.shares_storage(&before.of)).collect::<Vec<_>>()
    };
    let tensors = |l: &[(&str, &Tensor)]| {
        seen(&l.iter().map(|(_, t)| *t).collect::<Vec<_>>(), before.bytes.len())
    };
    let (writable, readable) = (here(true), here(false));
    let allowed = tensors(&writable);
    let wrong: Vec<usize> = (0..before.bytes.len())
        .filter(|&i| {
            before.bytes[i] != after.bytes.get(i).copied().unwrap_or_default() && !allowed[i]
        })
        .collect();
    let mut out = Vec::new();
    for (name, t) in &readable {
        let Some(c) = t.meta().concrete() else { continue };
        let width = c.width as usize;
        // `wrong` is in ascending order
        let hit = |start: usize| {
            let first = wrong.partition_point(|w| *w < start);
            wrong.get(first).is_some_and(|w| *w < start + width)
        };
        let places: Vec<(Vec<i64>, usize)> =
            indices(&c.sizes).zip(element_starts(&c)).filter(|(_, start)| hit(*start)).collect();
        if let Some((index, start)) = places.first() {
            let element = |m: &StorageSnapshot| {
                let bytes = m.bytes.get(*start..*start + width).unwrap_or_default();
                typed!(t.dtype(), T => format!("{:?}", T::decode(bytes)))
            };
            let more = if places.len() > 1 {
                format!(", and {} more", places.len() - 1)
            } else {
                String::new()
            };
            out.push(format!(
                "argument `{name}` is not declared as mutated, but the kernel changes it: element \
                    {index:?} from {} to {}{more}. Take it as `&mut Tensor` (`Tensor(a!)` in the \
                    schema)",
                element(before),
                element(after)
            ));
        }
    }
    let any_argument = tensors(&readable.iter().chain(&writable).copied().collect::<Vec<_>>());
    if let Some(byte) = wrong.iter().find(|&&i| !any_argument[i]) {
        let nearest = readable.iter().chain(&writable).filter_map(|(name, t)| {
            let (start, end) = t.meta().concrete()?.span()?;
            let byte = i64::try_from(*byte).ok()?;
            let width = t.dtype().size() as i64;
            Some(match (start - byte, byte - end) {
                (before @ 1.., _) => (
                    before,
                    format!(
                        "position {} before the first element of `{name}`",
                        (before - 1) / width + 1
                    ),
                ),
                (_, after @ 0..) => (
                    after,
                    format!("position {} after the last element of `{name}`", after / width + 1),
                ),
                _ => (0, format!("between the elements of `{name}`")),
            })
        });
        let place = nearest
            .min_by_key(|(distance, _)| *distance)
            .map_or_else(|| "outside of all arguments".to_owned(), |(_, place)| place);
        out.push(format!("the kernel writes out of bounds of its arguments: {place}"));
    }
    out
}

/// Undeclared aliasing of outputs. The dispatcher already refuses it for custom operators.
fn undeclared_aliases(subject: &OpUnderTest<'_>, ran: &CallRecord) -> Vec<String> {
    let mut out = Vec::new();
    let tensors = |v: &Value| -> Vec<Tensor> {
        flatten(std::slice::from_ref(v)).iter().flat_map(Value::tensors).cloned().collect()
    };
    let argument =
        |i: Option<usize>| i.and_then(|a| ran.args.get(a)).map(tensors).unwrap_or_default();
    for (i, v) in ran.outputs.iter().enumerate() {
        let declared = argument(subject.op.return_alias(i));
        for t in tensors(v) {
            let allowed = |u: &Tensor| declared.iter().any(|d| d.shares_storage(u));
            for (a, arg) in subject.schema.args.iter().zip(&ran.args) {
                if arg.tensors().any(|u| u.shares_storage(&t) && !allowed(u)) {
                    out.push(format!(
                        "output {i} shares memory with argument `{}`, but the schema does not \
                            declare it",
                        a.name
                    ));
                }
            }
            for (j, w) in ran.outputs.iter().enumerate().take(i) {
                if subject.op.return_alias(j).is_none()
                    && tensors(w).iter().any(|u| u.shares_storage(&t) && !allowed(u))
                {
                    out.push(format!(
                        "outputs {j} and {i} share memory, but the schema does not declare it"
                    ));
                }
            }
        }
    }
    out
}

/// Notes whether results depend on the former contents of mutated arguments.
pub(super) fn note_initial_contents_dependence(
    subject: &OpUnderTest<'_>,
    derive: &VariantGenerator<'_>,
    report: &mut CheckReport,
) -> maquette_ops::Result<()> {
    const CONTENTS: [u8; 2] = [0, 0x3f];
    let mut runs = Vec::new();
    for byte in CONTENTS {
        let Some(args) = derive.with_initial_contents(byte, subject.op)? else { return Ok(()) };
        match subject.run(&args) {
            Ok(ran) => runs.push(ran),
            Err(_) => return Ok(()),
        }
    }
    if let [a, b] = &runs[..] {
        let differ = !Pair { first: ("", a), second: ("", b), values: true }
            .differences(subject.schema)
            .is_empty();
        let names: Vec<String> = subject
            .schema
            .mutates()
            .filter_map(|i| Some(format!("`{}`", subject.schema.args.get(i)?.name)))
            .collect();
        let verb = if differ { "depend" } else { "do not depend" };
        report
            .notes
            .push(format!("the results {verb} on the initial contents of {}", names.join(" and ")));
    }
    Ok(())
}

/// Calls the operator with a margin around every tensor, to find accesses out of bounds: a margin
/// must not change, and its contents must not affect the results.
pub(super) fn margins(
    subject: &OpUnderTest<'_>,
    derive: &VariantGenerator<'_>,
    values: bool,
    report: &mut CheckReport,
) -> maquette_ops::Result<()> {
    // the first two are equal, to distinguish a dependence on the margin from nondeterminism
    const FILLERS: [u8; 3] = [0x5a, 0x5a, 0];
    let mut runs = Vec::new();
    for filler in FILLERS {
        let Some(args) = derive.with_margins(filler)? else { return Ok(()) };
        match subject.run(&args) {
            Ok(ran) => runs.push(ran),
            Err(e) if breaks_contract(&e) => {
                report.fail("the sample with a margin around every tensor", &subject.text(&e));
                return Ok(());
            }
            // a kernel may require a storage offset
            Err(_) => return Ok(()),
        }
    }
    let sample = "the sample with a margin around every tensor";
    let [a, again, b] = &runs[..] else { return Ok(()) };
    call(subject, a, sample, report, &mut WrittenArgs::default());
    let repeats = || {
        Pair { first: ("", a), second: ("", again), values: true }
            .differences(subject.schema)
            .is_empty()
    };
    if values && repeats() {
        let pair =
            Pair { first: ("with one margin", a), second: ("with another", b), values: true };
        for d in pair.differences(subject.schema) {
            report.fail(
                sample,
                &format!(
                    "the kernel reads out of bounds of its arguments, because results depend on \
                        the memory around them: {d}"
                ),
            );
        }
    }
    Ok(())
}
