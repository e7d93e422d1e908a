//! Asks a running program the same questions with refit and its peers: how soon an answer begins,
//! what it costs the program, and whether it is right.
//!
//! The program is this one, started once more. It calls a function from two callers by turns, with
//! two texts by turns, so every right answer is known. A tool has begun when the code of the
//! function has changed, which is true of all of them.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use refit_probe::spec::Spec;
use refit_probe::watch;
use refit_splice::process::Program;

use crate::probes::end_peer;
use crate::report::Report;
use crate::stats::Sample;
use crate::watched::Watched;
use crate::workload::refit;

/// The argument with which the program is the one that is asked about.
pub(crate) const ARGUMENT: &str = "--asked";
const TOOLS: [Tool; 4] = [Tool::Refit, Tool::Bpftrace, Tool::Frida, Tool::Gdb];
const ROUNDS: usize = 5;
/// The time after which a tool that has not begun is given up.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(60);
const DEPTH: u64 = 20;
const TEXTS: [&std::ffi::CStr; 2] = [c"select id, name from people where id = ?", c"commit"];

/// A tool that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Refit,
    Bpftrace,
    Frida,
    Gdb,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Refit => "refit",
            Self::Bpftrace => "bpftrace",
            Self::Frida => "Frida",
            Self::Gdb => "gdb",
        }
    }

    /// Returns the number of calls that it sees in a round; slower tools get fewer.
    fn calls(self) -> u64 {
        match self {
            Self::Refit => 200_000,
            Self::Bpftrace | Self::Frida => 20_000,
            Self::Gdb => 200,
        }
    }
}

/// A question, and how it is typed.
struct Question {
    title: &'static str,
    /// The name that the scripts of Frida and gdb know.
    name: &'static str,
    /// The actions of refit's probe and of bpftrace's.
    refit: &'static str,
    bpftrace: &'static str,
    /// The number of different answers; `None`: as many as there are calls, or durations.
    answers: Option<usize>,
}

const QUESTIONS: [Question; 4] = [
    Question {
        title: "who calls, by stack?",
        name: "stacks",
        refit: "{ @[ustack(8)] = count() }",
        bpftrace: "{ @[ustack(8)] = count(); }",
        answers: Some(2),
    },
    Question {
        title: "with which texts?",
        name: "texts",
        refit: "{ @[str(arg0)] = count() }",
        bpftrace: "{ @[str(arg0)] = count(); }",
        answers: Some(2),
    },
    Question {
        title: "how long do calls take?",
        name: "times",
        refit: "{ histogram latency }",
        bpftrace: "",
        answers: None,
    },
    Question {
        title: "each call, as it is made",
        name: "messages",
        refit: r#"{ printf("%d %s\n", arg1, str(arg0)) }"#,
        bpftrace: r#"{ printf("%d %s\n", arg1, str(arg0)); }"#,
        answers: None,
    },
];

/// The results of a tool with a question.
#[derive(Default)]
struct Measured {
    /// Milliseconds from the start of the tool until it sees calls.
    begun: Sample,
    /// Nanoseconds that it adds to a call.
    cost: Sample,
    /// Calls that are missing in the answers, and calls in all.
    missing: u64,
    calls: u64,
    /// Whether there were other answers than the right ones.
    wrong: bool,
    /// The reason that there is nothing more.
    ended: Option<String>,
}

/// All of it: per question, per tool.
pub(crate) struct Questions(Vec<Vec<Measured>>);

#[inline(never)]
fn asked_by_bench(text: &u8, value: u64) -> u64 {
    black_box(value) + u64::from(*black_box(text))
}

#[inline(never)]
fn one_caller(n: u64) {
    black_box(asked_by_bench(&TEXTS[0].to_bytes()[0], n));
    black_box(n);
}

#[inline(never)]
fn another_caller(n: u64) {
    black_box(asked_by_bench(&TEXTS[1].to_bytes()[0], n));
    black_box(n);
}

#[inline(never)]
fn descend(depth: u64, calls: u64) {
    if depth > 0 {
        black_box(descend)(depth - 1, calls);
    } else {
        let callers = [one_caller, another_caller].map(black_box);
        (0..calls).for_each(|n| callers[n as usize % 2](n));
    }
    black_box(depth);
}

/// Says where the function is. Calls it as often as each line says, and answers with ns per call.
pub(crate) fn serve() {
    println!("{}", asked_by_bench as *const () as usize);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let Ok(calls) = line.trim().parse() else { return };
        let began = Instant::now();
        descend(DEPTH, calls);
        println!("{}", began.elapsed().as_nanos() as f64 / calls as f64);
    }
}

/// The program that is asked about.
struct Asked {
    program: Watched,
    /// Address of the function.
    address: u64,
}

impl Asked {
    fn start() -> Result<Self, String> {
        let mut program = Watched::start(ARGUMENT)?;
        let address = program.line()?.parse().map_err(|e| format!("an address: {e}"))?;
        Ok(Self { program, address })
    }

    /// Returns the nanoseconds per call.
    fn run(&mut self, calls: u64) -> Result<f64, String> {
        self.program.ask(&calls.to_string())
    }

    /// Returns the code of the function, also while another process traces the program.
    fn code(&self) -> Result<[u8; 16], String> {
        let memory = File::open(format!("/proc/{}/mem", self.program.id()));
        let mut code = [0; 16];
        let read = memory.and_then(|memory| memory.read_exact_at(&mut code, self.address));
        read.map_err(|_| "the program has ended")?;
        Ok(code)
    }
}

pub(crate) fn measure() -> Result<Questions, String> {
    let mut all: Vec<Vec<Measured>> = Vec::new();
    for question in &QUESTIONS {
        let mut measured: Vec<Measured> = TOOLS.iter().map(|_| Measured::default()).collect();
        for _ in 0..ROUNDS {
            for (tool, into) in TOOLS.into_iter().zip(&mut measured) {
                if into.ended.is_none()
                    && let Err(why) = ask(question, tool, into)
                {
                    into.ended = Some(why);
                }
            }
        }
        all.push(measured);
    }
    Ok(Questions(all))
}

/// Returns the number of calls that a tool sees. No tool is asked for more messages than bpftrace.
fn calls(question: &Question, tool: Tool) -> u64 {
    match question.name {
        "messages" => tool.calls().min(Tool::Bpftrace.calls()),
        _ => tool.calls(),
    }
}

/// Asks a question once.
fn ask(question: &Question, tool: Tool, into: &mut Measured) -> Result<(), String> {
    let mut asked = Asked::start()?;
    let (calls, before) = (calls(question, tool), asked.code()?);
    asked.run(Tool::Refit.calls())?;
    let plain = asked.run(Tool::Refit.calls())?;
    let mut command = command(question, tool, &asked)?;
    let began = Instant::now();
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().map_err(|_| "not installed".to_owned())?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // What has been read before an error is the answer.
        let _ = output.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    while asked.code()? == before {
        if began.elapsed() > BEGIN_TIMEOUT || child.try_wait().map_err(|e| e.to_string())?.is_some()
        {
            let _ = child.kill();
            let _ = child.wait();
            return Err("it does not attach".to_owned());
        }
        // Polls; what is measured takes some hundred times as long.
        std::thread::sleep(Duration::from_millis(1));
    }
    into.begun.push(began.elapsed().as_secs_f64() * 1e3);
    let took = asked.run(calls);
    drop(child.stdin.take());
    match tool {
        Tool::Refit | Tool::Bpftrace => end_peer(&mut child)?,
        _ => drop(child.wait().map_err(|e| e.to_string())?),
    }
    let text = reader.join().map_err(|_| "no answer")?;
    into.cost.push(took? - plain);
    let (seen, answers) = answers(question, tool, &text);
    into.calls += calls;
    into.missing += calls.saturating_sub(seen);
    if seen > calls || question.answers.is_some_and(|right| answers != right) {
        into.wrong = true;
        eprintln!("bench: {}, {}: {text}", tool.name(), question.title);
    }
    // The program has to be as it was.
    asked.run(calls)?;
    Ok(())
}

/// Returns the command of a tool.
fn command(question: &Question, tool: Tool, asked: &Asked) -> Result<Command, String> {
    let process = asked.program.id().to_string();
    let program = Program::open(asked.program.id()).map_err(|e| e.to_string())?;
    let spec: Spec = "func:*:*asked_by_bench* { count }".parse().map_err(|e| format!("{e}"))?;
    let found = watch::list(&program, &[spec]).map_err(|e| e.to_string())?;
    let (file, found) = found.first().ok_or("the function is not there")?;
    let place = format!("uprobe:{}:{}", file.path.display(), found.name);
    let folder = env!("CARGO_MANIFEST_DIR");
    let mut command = match tool {
        Tool::Refit => Command::new(refit()),
        Tool::Frida => Command::new(std::env::var("FRIDA_PYTHON").unwrap_or_default()),
        Tool::Bpftrace | Tool::Gdb => Command::new(tool.name()),
    };
    match tool {
        Tool::Refit => {
            let probe = format!("{place} {}", question.refit);
            command.args(["probe", "--json", "-p", &process, "-e", &probe]);
        }
        Tool::Bpftrace if question.name == "times" => {
            let ends = place.replacen("uprobe", "uretprobe", 1);
            let script = format!(
                "{place} {{ @from[tid] = nsecs; }} \
                 {ends} {{ @ = hist(nsecs - @from[tid]); delete(@from[tid]); }}"
            );
            command.args(["-p", &process, "-e", &script]);
        }
        Tool::Bpftrace => {
            let script = format!("{place} {}", question.bpftrace);
            command.args(["-p", &process, "-e", &script]);
        }
        Tool::Frida => {
            let (script, offset) =
                (format!("{folder}/frida/ask.py"), format!("{:#x}", found.address));
            command.args([&script, question.name, &process, &offset]);
        }
        Tool::Gdb if question.name == "times" => return Err("it cannot".to_owned()),
        Tool::Gdb => {
            let what = format!("{} {:#x} {}", question.name, asked.address, tool.calls());
            let script = format!("{folder}/gdb/ask.py");
            command.args(["-nx", "-q", "-batch", "-p", &process, "-x", &script]).env("ASK", what);
        }
    }
    Ok(command)
}

/// Returns the number of calls in an answer, and that of the different answers.
fn answers(question: &Question, tool: Tool, text: &str) -> (u64, usize) {
    if question.name == "messages" {
        let is_one =
            |line: &&str| TEXTS.iter().any(|text| line.contains(text.to_str().unwrap_or("?")));
        return (text.lines().filter(is_one).count() as u64, 0);
    }
    let counts: Vec<u64> = match tool {
        Tool::Refit => json_counts(text),
        // `@[…]: 7`, or `[256, 512)  7 |@@  |`.
        Tool::Bpftrace => text
            .lines()
            .filter_map(|line| {
                let map = line.rsplit_once("]: ").map(|(_, count)| count);
                let bucket = || line.strip_suffix('|')?.split(')').nth(1)?.split('|').next();
                map.or_else(bucket)?.trim().parse().ok()
            })
            .collect(),
        Tool::Frida | Tool::Gdb => {
            text.lines().filter_map(|line| line.split_once(' ')?.0.parse().ok()).collect()
        }
    };
    (counts.iter().sum(), counts.iter().filter(|count| **count > 0).count())
}

/// Returns the counts of all keys, or of all durations, that refit prints.
fn json_counts(text: &str) -> Vec<u64> {
    let lines =
        text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let count = |line: serde_json::Value| {
        let bits = || Some(line["bits"].as_array()?.iter().filter_map(|one| one.as_u64()).sum());
        line["count"].as_u64().or_else(bits)
    };
    lines.filter_map(count).collect()
}

impl Report {
    pub(crate) fn questions(&mut self, measured: Result<Questions, String>) {
        let heads = ["question", "tool", "sees calls after, ms", "adds to a call, ns", "answer"];
        let title = "The same questions, to a running program";
        let Some(Questions(all)) = self.begin(title, "questions", &heads, measured) else { return };
        for (question, tools) in QUESTIONS.iter().zip(all) {
            for (tool, one) in TOOLS.iter().zip(tools) {
                let answer = match (&one.ended, one.calls) {
                    (Some(why), _) => why.clone(),
                    _ if one.wrong => "wrong".to_owned(),
                    _ if one.missing == 0 => "exact".to_owned(),
                    (None, calls) => {
                        format!(
                            "{:.1} % of the calls missing",
                            one.missing as f64 / calls as f64 * 100.0
                        )
                    }
                };
                let [begun, cost] = [&one.begun, &one.cost].map(|sample| match one.calls {
                    0 => String::new(),
                    _ => sample.show(0),
                });
                self.row(&[question.title.into(), tool.name().into(), begun, cost, answer]);
            }
        }
    }
}
