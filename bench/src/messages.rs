//! Measures a question and its answer between two instances: the same number of bytes each way, as
//! the body of a small message.
//!
//! Both are processes of their own, this program started twice, with all their threads bound to a
//! processor. *One processor*: both to the same. *Two*: each asks again at once, so that no thread
//! falls asleep. *Asleep*: a pause before each question, after which all threads sleep. The first
//! row is the cost below the layer: the bytes alone, back and forth through two rings, by two
//! threads.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use refit_messages::{InstanceId, Layer, Message, Request, Security, Way};
use refit_sys::processor;
use refit_sys::ring::{Reader, Rings, Writer};
use serde::{Deserialize, Serialize};

use crate::stats::Sample;
use crate::workload::{self, Workload};

/// The argument with which, and with the number of a processor, the program is one of the
/// instances.
pub(crate) const ARGUMENT: &str = "--messages";
pub(crate) const CONTENDERS: [&str; 3] = ["rings alone", "one host", "TCP, by the loopback"];
pub(crate) const SIZES: [usize; 2] = [64, 4096];
pub(crate) const PLACES: [&str; 3] = ["one processor", "two processors", "two, asleep"];

const ROUNDS: usize = 7;
/// The number of questions between two readings of the clock, and the number of such batches.
const BATCH: usize = 50;
const BATCHES: usize = 200;
/// The number of questions that come after a pause, and the length of the pause, which is longer
/// than any thread spins.
const WAKES: usize = 300;
const PAUSE: Duration = Duration::from_millis(1);
const LOOPBACK: Security = Security::None { anywhere: false };

/// Microseconds: `[contender][of SIZES][of PLACES]`.
pub(crate) type Messages = [[[Sample; PLACES.len()]; SIZES.len()]; CONTENDERS.len()];

pub(crate) fn measure() -> Result<Messages, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut all = Messages::default();
    for _ in 0..ROUNDS {
        for processors in [[0, 0], [0, 1]] {
            for (contender, samples) in all.iter_mut().enumerate() {
                let mut pair = Pair::start(contender, processors, folder.path())?;
                for (&size, samples) in SIZES.iter().zip(samples) {
                    if processors[0] == processors[1] {
                        samples[0].push(pair.ask(size, false)?);
                    } else {
                        samples[1].push(pair.ask(size, false)?);
                        samples[2].push(pair.ask(size, true)?);
                    }
                }
            }
        }
    }
    Ok(all)
}

/// The asking process, and the answering one if it is another process.
struct Pair {
    asks: Workload,
    _answers: Option<Workload>,
}

impl Pair {
    fn start(contender: usize, [here, there]: [usize; 2], folder: &Path) -> Result<Self, String> {
        let start = |on: usize| Workload::start(&[], &[ARGUMENT.to_owned(), on.to_string()]);
        let mut asks = start(here)?;
        if contender == 0 {
            let [_] = asks.ask(&format!("rings {there}"))?;
            return Ok(Self { asks, _answers: None });
        }
        let mut answers = start(there)?;
        let place = folder.join("socket").display().to_string();
        let place = if contender == 1 { place } else { "tcp".to_owned() };
        let [port] = answers.ask(&format!("listen {place}"))?;
        let [_] = asks.ask(&format!("join {place} {port}"))?;
        Ok(Self { asks, _answers: Some(answers) })
    }

    /// Returns the median of a round, in microseconds.
    fn ask(&mut self, size: usize, asleep: bool) -> Result<f64, String> {
        let how = if asleep { "asleep" } else { "awake" };
        let [median] = self.asks.ask(&format!("ask {size} {how}"))?;
        Ok(median)
    }
}

#[derive(Serialize, Deserialize)]
struct Echo;

impl Message for Echo {
    const KIND: u16 = 1;
    const WAY: Way = Way::Urgent;
}

impl Request for Echo {
    type Answer = ();
}

/// Runs one of the instances, on the processor that its second argument names.
pub(crate) fn serve(arguments: &[String]) {
    let on = arguments.first().and_then(|on| on.parse().ok());
    let bound = on.is_some_and(processor::bind);
    let mut side = Side::None;
    workload::serve(|words| {
        if !bound {
            return Err(format!("it cannot be bound to the processor {arguments:?}"));
        }
        side.answer(words)
    });
}

enum Side {
    None,
    Rings(Writer, Reader),
    Layer(Arc<Layer>),
}

impl Side {
    fn answer(&mut self, words: &[&str]) -> Result<Vec<f64>, String> {
        match *words {
            ["rings", there] => {
                let there = there.parse().map_err(|e| format!("{there}: {e}"))?;
                let rings = Rings::new(2).map_err(|e| e.to_string())?;
                let (reader, writer) = (rings.reader(0), rings.writer(1));
                thread::spawn(move || processor::bind(there) && echo(reader, writer));
                *self = Self::Rings(rings.writer(0), rings.reader(1));
                Ok(vec![0.0])
            }
            ["listen", place] => {
                let layer = Layer::builder(InstanceId(1))
                    .answer::<Echo>(|_, _, body, reply| reply.say(&(), body))
                    .start();
                let layer = layer.map_err(|e| e.to_string())?;
                let listens = match place {
                    "tcp" => layer.listen(([127, 0, 0, 1], 0).into(), &LOOPBACK),
                    path => layer.listen_here(path.as_ref()).map(|()| ([0; 4], 0).into()),
                };
                *self = Self::Layer(layer);
                listens.map(|at| vec![at.port().into()]).map_err(|e| e.to_string())
            }
            ["join", place, port] => {
                let layer = Layer::builder(InstanceId(0)).start().map_err(|e| e.to_string())?;
                let joined = match place {
                    "tcp" => layer.join(&format!("127.0.0.1:{port}"), &LOOPBACK),
                    path => layer.join_here(path.as_ref()),
                };
                *self = Self::Layer(layer);
                joined.map(|()| vec![0.0]).map_err(|e| e.to_string())
            }
            ["ask", size, how] => {
                let size = size.parse().map_err(|e| format!("{size}: {e}"))?;
                self.rounds(size, how == "asleep").map(|median| vec![median])
            }
            _ => Err(format!("{words:?}: nobody knows what that is")),
        }
    }

    fn rounds(&mut self, size: usize, asleep: bool) -> Result<f64, String> {
        let body = vec![7; size];
        let (batches, batch) = if asleep { (WAKES, 1) } else { (BATCHES, BATCH) };
        let mut taken = Sample::default();
        for _ in 0..batches {
            if asleep {
                thread::sleep(PAUSE);
            }
            let began = Instant::now();
            for _ in 0..batch {
                self.round(&body)?;
            }
            taken.push(began.elapsed().as_secs_f64() * 1e6 / batch as f64);
        }
        Ok(taken.median())
    }

    fn round(&mut self, body: &[u8]) -> Result<(), String> {
        match self {
            Self::Rings(writer, reader) => {
                let mut back = [0; SIZES[SIZES.len() - 1]];
                let back = &mut back[..body.len()];
                put(writer, body).and_then(|()| reader.read_exact(back)).map_err(|e| e.to_string())
            }
            Self::Layer(layer) => {
                let answer = layer.ask(InstanceId(1), &Echo, body).map_err(|e| e.to_string())?;
                (answer.1 == body).then_some(()).ok_or_else(|| "another answer".to_owned())
            }
            Self::None => Err("there is nobody to be asked".to_owned()),
        }
    }
}

/// Sends all data back. Data comes in whole rounds, so that the data that has been read is all of
/// the round.
fn echo(mut reader: Reader, mut writer: Writer) -> bool {
    let mut bytes = [0; SIZES[SIZES.len() - 1]];
    loop {
        match reader.read(&mut bytes) {
            Ok(count) if put(&mut writer, &bytes[..count]).is_ok() => {}
            _ => return false,
        }
    }
}

fn put(writer: &mut Writer, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        bytes = &bytes[writer.write(bytes, true)?..];
    }
    Ok(())
}
