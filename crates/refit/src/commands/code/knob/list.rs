//! `refit knob list`.

use std::collections::BTreeMap;
use std::time::Duration;

use refit_analysis::FunctionId;
use refit_knobs::rank::{self, Heat};
use refit_knobs::{Knob, current, find};
use refit_optimize::profile;
use refit_splice::immediates;
use refit_splice::process::Program;
use serde::Serialize;

use super::arguments::ListArgs;
use super::subject::Subject;
use crate::commands::code::program::{failure, open, open_to_clean};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;
use crate::table::{Align, Table};

/// A knob, for programs.
#[derive(Serialize)]
pub(super) struct Record {
    name: String,
    file: String,
    /// Address of the instruction in the file.
    address: u64,
    /// The number of the file.
    original: i64,
    /// The number in the program; none if its instructions differ.
    value: Option<i64>,
    score: u32,
    /// Number of instructions that are set together.
    instructions: usize,
    usage: String,
    risks: Vec<String>,
    escapes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<u64>,
}

impl Record {
    pub(super) fn new(knob: &Knob, file: &str, value: Option<i64>, heat: Option<Heat>) -> Self {
        let texts = |risks: &[String]| risks.to_vec();
        Self {
            name: knob.name.clone(),
            file: file.to_owned(),
            address: knob.address(),
            original: knob.value,
            value,
            score: knob.score,
            instructions: knob.immediates.len(),
            usage: knob.usage.text(knob.value),
            risks: texts(&knob.risks.iter().map(ToString::to_string).collect::<Vec<_>>()),
            escapes: texts(&knob.escapes.iter().map(ToString::to_string).collect::<Vec<_>>()),
            calls: heat.map(|heat| heat.calls),
            seen: heat.map(|heat| heat.seen),
        }
    }
}

/// Lists knobs.
pub(super) fn run(
    id: u32,
    file: Option<&str>,
    args: &ListArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    // What changes nothing works in programs that limit their calls, too.
    let program = if args.time.is_some() { open(id)? } else { open_to_clean(id)? };
    if args.set {
        return set(&program, out);
    }
    let mut subject = Subject::of(&program, file)?;
    let heat = match args.time {
        Some(time) => Some(profiled(&program, &mut subject, time)?),
        None => None,
    };
    let (module, bias) = subject.module();
    let functions = wanted(&subject, args, heat.as_ref())?;
    let mut knobs = find::find(module, &functions);
    knobs.retain(|knob| args.all || knob.score >= rank::LIKELY);
    rank::sort(&mut knobs, heat.as_ref().unwrap_or(&BTreeMap::new()));
    let mut columns = vec![
        ("NUMBER", Align::Right),
        ("NOW", Align::Right),
        ("SCORE", Align::Right),
        ("SETTABLE", Align::Left),
    ];
    columns.extend(heat.as_ref().map(|_| ("CALLS", Align::Right)));
    columns.extend([("NAME", Align::Left), ("USE", Align::Left)]);
    let mut table = Table::new(&columns);
    for knob in &knobs {
        let now = current(&program, bias, knob);
        let own = heat.as_ref().map(|heat| heat.get(&knob.function).copied().unwrap_or_default());
        if out.json() {
            out.object(&Record::new(knob, &subject.name(), now, own))?;
            continue;
        }
        let changed = now.filter(|&now| now != knob.value);
        let mut row = vec![
            knob.value.to_string(),
            changed.map_or_else(|| "-".to_owned(), |now| now.to_string()),
            knob.score.to_string(),
            settable(knob).to_owned(),
        ];
        row.extend(own.map(|heat| format::count(heat.calls)));
        row.extend([knob.name.clone(), knob.usage.text(knob.value)]);
        table.row(row);
    }
    if !out.json() {
        table.lines().iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

/// Whether a knob can be set.
pub(super) fn settable(knob: &Knob) -> &'static str {
    match (&knob.escapes[..], &knob.risks[..]) {
        ([_, ..], _) => "no",
        ([], [_, ..]) => "unchecked",
        ([], []) => "yes",
    }
}

/// Counts the calls of all functions for some time, except those that have been changed, the number
/// of which is told.
fn profiled(
    program: &Program,
    subject: &mut Subject,
    time: Duration,
) -> Result<BTreeMap<FunctionId, Heat>, Failure> {
    let Subject { files, file, .. } = subject;
    let failed = |error| failure(program.id(), &error);
    let changed = profile::changed(program, files, *file).map_err(failed)?;
    let left_out = changed.functions.len() as u64;
    if left_out > 0 {
        let functions = format::counted(left_out, "function");
        say!("refit: calls of {functions} with other code than the file are not counted");
    }
    let called = profile::called(program, files, *file, &changed, time).map_err(failed)?;
    Ok(heat(&called))
}

fn heat(called: &profile::Called) -> BTreeMap<FunctionId, Heat> {
    let mut heat: BTreeMap<FunctionId, Heat> = BTreeMap::new();
    for (&id, &calls) in &called.calls {
        heat.entry(id).or_default().calls = calls;
    }
    for (&id, &seen) in &called.seen {
        heat.entry(id).or_default().seen = seen;
    }
    heat
}

/// Returns the functions whose knobs are listed.
fn wanted(
    subject: &Subject,
    args: &ListArgs,
    heat: Option<&BTreeMap<FunctionId, Heat>>,
) -> Result<Vec<FunctionId>, Failure> {
    let (module, _) = subject.module();
    let pattern = args.func.as_deref().unwrap_or("*");
    let mut functions = module.find(pattern);
    if functions.is_empty() {
        let near = module.near(pattern, 4).join(", ");
        return Err(Failure::new(
            format!("list knobs of {}", subject.name()),
            format!("it has no function {pattern}"),
            if near.is_empty() {
                "list functions with `refit funcs`".to_owned()
            } else {
                format!("name another one, such as {near}")
            },
        ));
    }
    if let Some(heat) = heat.filter(|_| !args.all) {
        functions.retain(|id| heat.contains_key(id));
    }
    Ok(functions)
}

/// Lists the knobs that are set in any file of the program, as they are recorded there.
fn set(program: &Program, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        /// Address of the bytes in the program.
        address: u64,
        file: String,
        old: Vec<u8>,
        new: Vec<u8>,
    }
    let id = program.id();
    let settings = immediates::settings(program).map_err(|why| failure(id, &why.into()))?;
    let files = refit_probe::modules::of(program).map_err(|error| failure(id, &error.into()))?;
    let mut table = Table::new(&[
        ("ADDRESS", Align::Right),
        ("FILE'S", Align::Left),
        ("NOW", Align::Left),
        ("FILE", Align::Left),
    ]);
    for one in settings.iter().flat_map(|setting| &setting.bytes) {
        let file = files.iter().find(|file| file.contains(one.address));
        let file = file.map_or_else(|| "-".to_owned(), modules_name);
        if out.json() {
            let (old, new) = (one.old.clone(), one.new.clone());
            out.object(&Line { address: one.address, file, old, new })?;
        } else {
            let address = format!("{:#x}", one.address);
            table.row(vec![address, bytes(&one.old), bytes(&one.new), file]);
        }
    }
    if settings.is_empty() && !out.json() {
        out.line("no knob is set")?;
    } else if !out.json() {
        table.lines().iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

fn modules_name(file: &refit_probe::modules::Mapped) -> String {
    file.name()
}

/// Formats bytes as they are in memory.
fn bytes(all: &[u8]) -> String {
    all.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
