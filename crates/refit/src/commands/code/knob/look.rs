//! `refit knob get`.

use std::time::Duration;

use iced_x86::{Decoder, DecoderOptions, OpKind, Register};
use refit_analysis::FunctionId;
use refit_knobs::{Knob, current, find};
use refit_probe::reading::Reading;
use refit_probe::spec::{NotUnderstood, Spec};
use refit_probe::watch;
use refit_splice::process::Program;
use serde::Serialize;

use super::arguments::GetArgs;
use super::list::{Record, settable};
use super::subject::Subject;
use crate::commands::code::program::{failure, open, open_to_clean};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Shows a knob.
pub(super) fn run(
    id: u32,
    file: Option<&str>,
    args: &GetArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let program = if args.time.is_some() { open(id)? } else { open_to_clean(id)? };
    let subject = Subject::of(&program, file)?;
    let knob = subject.knob("show", &args.knob)?;
    let (module, bias) = subject.module();
    let now = current(&program, bias, &knob);
    if out.json() {
        out.object(&Record::new(&knob, &subject.name(), now, None))?;
    } else {
        describe(&subject, &knob, now, out)?;
    }
    if let Some(time) = args.time {
        observe(&program, &subject, &knob, time, out)?;
    }
    if args.elsewhere {
        let all: Vec<FunctionId> = (0..module.functions().len() as u32).map(FunctionId).collect();
        for other in find::find(module, &all) {
            let alike = other.value == knob.value && other.usage.word() == knob.usage.word();
            if !alike || other.address() == knob.address() {
                continue;
            }
            if out.json() {
                let now = current(&program, bias, &other);
                out.object(&Record::new(&other, &subject.name(), now, None))?;
            } else {
                out.line(&format!("elsewhere: {}", other.name))?;
            }
        }
    }
    out.flush()
}

fn describe(
    subject: &Subject,
    knob: &Knob,
    now: Option<i64>,
    out: &mut Output,
) -> Result<(), Failure> {
    let (module, _) = subject.module();
    let now = match now {
        Some(now) if now == knob.value => format!("{now} ({now:#x})"),
        Some(now) => format!("{now} ({now:#x}); {} in the file", knob.value),
        None => format!("not known: its code differs; {} in the file", knob.value),
    };
    out.line(&format!("{}: {now}", knob.name))?;
    out.line(&format!("use: {}", knob.usage.text(knob.value)))?;
    let flow = module.flow(knob.function);
    for one in &knob.immediates {
        let text = flow.instruction_at(one.instruction).map(|one| module.text(one));
        let text = text.unwrap_or_default();
        out.line(&format!("instruction: {text} at {:#x} of {}", one.instruction, subject.name()))?;
    }
    let ranges = knob.immediates.iter().map(refit_knobs::immediate::Immediate::range);
    let common = ranges.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)));
    if let Some((least, greatest)) = common {
        out.line(&format!("range: {least} to {greatest}"))?;
    }
    out.line(&format!("settable: {}", settable(knob)))?;
    for escape in &knob.escapes {
        out.line(&format!("escapes: {escape}"))?;
    }
    for risk in &knob.risks {
        out.line(&format!("risk: {risk}"))?;
    }
    Ok(())
}

/// Counts how often the instruction is executed, and with which numbers in the register that it
/// compares.
fn observe(
    program: &Program,
    subject: &Subject,
    knob: &Knob,
    time: Duration,
    out: &mut Output,
) -> Result<(), Failure> {
    let id = program.id();
    let compared = compared(subject, knob);
    let histogram = compared.map(|register| format!(", histogram {register}")).unwrap_or_default();
    let path = subject.files.mapped(subject.file).path.display().to_string();
    let text = format!("insn:{path}:{:#x} {{ count{histogram} }}", knob.address());
    let spec: Spec = text.parse().map_err(|why: NotUnderstood| {
        Failure::new(format!("watch {}", knob.name), why.to_string(), "leave --for out")
    })?;
    let failed = |error: &watch::Error| failure(id, error);
    let prepared = watch::prepare(program, &[spec], None).map_err(|error| failed(&error))?;
    let watch = prepared.install(program).map_err(|error| failed(&error))?;
    // The time for which is counted.
    std::thread::sleep(time);
    let mut readings = Vec::new();
    for action in watch.watched.iter().flat_map(|place| &place.actions) {
        readings.extend(watch.read(action).map(|counts| counts.all));
    }
    watch.remove(program).map_err(|why| failure(id, &why.into()))?;
    let mut seen = Seen { executed: 0, nanos: time.as_nanos() as u64, compared: Vec::new() };
    for reading in readings {
        match reading {
            Reading::Count(count) => seen.executed = count,
            Reading::Histogram(sizes) => {
                let sizes = sizes.iter().enumerate().filter(|(_, count)| **count > 0);
                seen.compared.extend(sizes.map(|(bits, &count)| Numbers {
                    from: if bits == 0 { 0 } else { 1 << (bits - 1) },
                    to: ((1_u128 << bits) - 1) as u64,
                    count,
                }));
            }
            _ => {}
        }
    }
    if out.json() {
        return out.object(&seen);
    }
    let (times, time) = (format::counted(seen.executed, "time"), format::nanos(seen.nanos));
    out.line(&format!("executed: {times} in {time}"))?;
    seen.compared.iter().try_for_each(|Numbers { from, to, count }| {
        out.line(&format!("compared: {from} to {to}: {}", format::count(*count)))
    })
}

/// The executions of an instruction, for programs.
#[derive(Serialize)]
struct Seen {
    executed: u64,
    nanos: u64,
    compared: Vec<Numbers>,
}

/// Numbers that were compared, without their signs.
#[derive(Serialize)]
struct Numbers {
    from: u64,
    to: u64,
    count: u64,
}

/// Returns the register that the instruction compares, as probes call it.
fn compared(subject: &Subject, knob: &Knob) -> Option<String> {
    let (module, _) = subject.module();
    let flow = module.flow(knob.function);
    let one = flow.instruction_at(knob.address())?;
    let bytes = module.bytes(one.address, usize::from(one.length))?;
    let instruction = Decoder::with_ip(64, bytes, one.address, DecoderOptions::NONE).decode();
    let compares = matches!(knob.usage.word().as_str(), "limit" | "equal" | "spin" | "loop");
    let register = instruction.op0_register();
    if !compares || instruction.op0_kind() != OpKind::Register || register == Register::None {
        return None;
    }
    let name = format!("{:?}", register.full_register()).to_lowercase();
    match register.size() {
        8 => Some(name),
        4 => Some(format!("(u32){name}")),
        _ => None,
    }
}
