//! Profile, layout, copies, proof.

use std::collections::BTreeSet;
use std::time::Duration;

use refit_analysis::FunctionId;
use refit_analysis::functions::Sources;
use refit_probe::files::Files;
use refit_probe::finder;
use refit_probe::modules;
use refit_probe::spec::{Place, Spec, What};
use refit_probe::watch;
use refit_splice::process::{Program, Refusal};
use refit_splice::remains::{self, Which};
use refit_splice::{Arrangement, Installed, Plan, Why};
use refit_sys::status::Status;

use crate::calls;
use crate::interval::Interval;
use crate::layout::{Figures, Hot, Order};
use crate::profile::{self, Called};
use crate::prove::{LOOKS, NoProof, Progress, Proof, prove};

/// The function that unwinders ask for frames.
pub const FINDER: &str = "_Unwind_Find_FDE";
/// Least size in bytes of a file's code that is optimised: less fits into the first cache.
const LEAST: u64 = 64 << 10;
/// Width of an interval that says enough of copies in the old order.
const EXACT: f64 = 0.02;
/// Calls of a function for each second of processor time up to which progress is measured by them:
/// more cost too much.
const OFTEN: f64 = 2_000_000.0;
/// Relative deviation of a function's calls from which on they are no measure.
const UNEVEN: f64 = 1.0;

/// The parts of a program that are optimised, and the way.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for which the program is profiled.
    pub profile: Duration,
    /// The file: the path, or a part of its name; the program's own if there is none.
    pub file: Option<String>,
    /// Only these functions, and what they call, by a pattern over names; everything if there is
    /// none.
    pub functions: Option<String>,
    /// Calls of this function are the program's progress; found if there is none.
    pub progress: Option<Spec>,
    /// Time of a slot in which progress is measured.
    pub slot: Duration,
    /// Number of rounds in which copies in the old order are measured first; 0 for none.
    pub placebo: usize,
    /// Whether nothing is changed but for the counters of the profile.
    pub rehearse: bool,
    /// Whether the copies are kept without a proof.
    pub unproved: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: Duration::from_secs(3),
            file: None,
            functions: None,
            progress: None,
            slot: Duration::from_millis(25),
            placebo: LOOKS[0],
            rehearse: false,
            unproved: false,
        }
    }
}

/// A step that has been made, for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Functions were called, and this number of them was found hot.
    Called(usize, usize),
    /// The blocks of this number of functions were counted for some time.
    Profiled(usize, Duration),
    /// Functions and blocks are copied; what the code is like before and after that.
    LaidOut(usize, usize, Figures, Figures),
    /// This function's calls are the progress.
    Progress(String),
    /// Copies in the old order were measured.
    Placebo(Proof),
    /// Copies in the new order were measured.
    Measured(Proof),
}

/// The end of an optimisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The copies stay, since they pay.
    Kept(Interval),
    /// They stay, as was asked for.
    Unproved,
    /// They have been taken out: it is not sure that they pay.
    Undone(Interval),
    /// Nothing was changed, as was asked for.
    Rehearsed,
}

/// The result.
#[derive(Debug)]
pub struct Outcome {
    /// The end of it.
    pub verdict: Verdict,
    /// The longest stop.
    pub stop: Duration,
    /// The gain of copies in the old order.
    pub placebo: Option<Interval>,
    /// The copies, if they stay.
    pub installed: Option<Installed>,
}

impl Outcome {
    /// Returns the gain that was measured.
    pub fn gain(&self) -> Option<Interval> {
        match self.verdict {
            Verdict::Kept(gain) | Verdict::Undone(gain) => Some(gain),
            Verdict::Unproved | Verdict::Rehearsed => None,
        }
    }
}

/// Why a program was not optimised. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is small.
    #[error(
        "the code of {file} takes {bytes} bytes, which fit into the caches: there is nothing to gain"
    )]
    Small {
        /// The file.
        file: String,
        /// Its size.
        bytes: u64,
    },
    /// The program did nothing.
    #[error("{file} ran no function that can be copied in that time")]
    Idle {
        /// The file.
        file: String,
    },
    /// The program has been optimised already.
    #[error("it is optimised already; undo that first")]
    Already,
    /// No function's calls are a measure of progress.
    #[error("no function was called evenly enough to measure progress by; name one")]
    NoProgress,
    /// Return addresses cannot be changed.
    #[error("it runs with shadow stacks, whose return addresses cannot be taken back")]
    ShadowStack,
    /// The file has the unwinder.
    #[error("{file} has the unwinder of exceptions in itself, whose code must not run in copies")]
    Unwinder {
        /// The file.
        file: String,
    },
    /// The file is not mapped.
    #[error("the program runs no file {wanted}")]
    NoFile {
        /// The name that was asked for.
        wanted: String,
    },
    /// Nothing could be measured.
    #[error(transparent)]
    NoProof(#[from] NoProof),
    /// The program cannot be watched.
    #[error(transparent)]
    Watch(#[from] watch::Error),
}

impl From<Why> for Error {
    fn from(why: Why) -> Self {
        Self::Watch(why.into())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Watch(refusal.into())
    }
}

/// Optimises a program: profiles it, copies what is hot, and keeps the copies if they pay. Each
/// step is told.
///
/// # Errors
/// [`Error`]; the program is as it was then.
pub fn optimize(
    program: &Program,
    options: &Options,
    tell: &mut dyn FnMut(&Step),
) -> Result<Outcome, Error> {
    let found = remains::find(program)?;
    if found.iter().any(|one| one.makes_calls() && one.entered(program) > 0) {
        return Err(Error::Already);
    }
    if has_shadow_stack(program) {
        return Err(Error::ShadowStack);
    }
    let mut files = Files::new(program)?;
    let file = chosen(program, &files, options)?;
    let name = files.mapped(file).name();
    // A program without other files has everything in itself.
    let is_static = files.all().len() == 1;
    let (module, _) = files.open(file)?;
    let unwinds = |id: &FunctionId| !module.function(*id).sources.contains(Sources::STUB);
    if is_static || module.find(FINDER).iter().any(unwinds) {
        return Err(Error::Unwinder { file: name });
    }
    let code = module.image().code().iter().map(|code| code.addresses.end - code.addresses.start);
    let bytes = code.sum();
    if bytes < LEAST {
        return Err(Error::Small { file: name, bytes });
    }
    let called = profile::called(program, &mut files, file, options.profile / 2)?;
    let hot = profile::hot(&files, file, &called);
    tell(&Step::Called(called.calls.len(), hot.len()));
    if hot.is_empty() {
        return Err(Error::Idle { file: name });
    }
    let profile = profile::blocks(program, &mut files, file, &hot, options.profile / 2)?;
    tell(&Step::Profiled(profile.functions.len(), profile.lasted));
    let targets = calls::targets(program, &mut files, file, &profile, options.profile / 4)?;
    let (progress, stay) = match &options.progress {
        Some(spec) => (Some(spec.clone()), BTreeSet::new()),
        None if options.rehearse || options.unproved => (None, BTreeSet::new()),
        None => {
            let (spec, id) = found_progress(&mut files, file, &called, options.slot, tell)?;
            (Some(spec), BTreeSet::from([id]))
        }
    };
    let (module, bias) = files.open(file)?;
    let mut hot = Hot::new(module, bias, (&profile, &targets), &stay);
    if let Some(pattern) = &options.functions {
        hot.restrict(&module.find(pattern).into_iter().collect());
    }
    if hot.is_empty() {
        return Err(Error::Idle { file: name });
    }
    let (functions, blocks) = hot.len();
    let new = hot.new_order();
    tell(&Step::LaidOut(functions, blocks, hot.figures_before(), hot.figures_after(&new)));
    let mut changing = Changing { program, files, options, stop: Duration::ZERO };
    match progress.filter(|_| !options.unproved) {
        _ if options.rehearse => Ok(changing.ends(Verdict::Rehearsed, None, None)),
        Some(progress) => changing.prove(&hot, &new, &progress, tell),
        None => {
            let installed = changing.install(hot.arrangement(&new))?;
            Ok(changing.ends(Verdict::Unproved, None, Some(installed)))
        }
    }
}

/// Finds a function by whose calls progress is measured, and which stays where it is.
fn found_progress(
    files: &mut Files,
    file: usize,
    called: &Called,
    slot: Duration,
    tell: &mut dyn FnMut(&Step),
) -> Result<(Spec, FunctionId), Error> {
    let (module, _) = files.open(file)?;
    let id = steady(called, slot).ok_or(Error::NoProgress)?;
    let function = module.function(id);
    tell(&Step::Progress(function.name()));
    let entry = function.entry;
    let file = files.mapped(file).path.display().to_string();
    let place = Place { module: Some(file), what: What::At(entry) };
    Ok((Spec::count(place), id))
}

/// A program that is being changed.
struct Changing<'a> {
    program: &'a Program,
    files: Files,
    options: &'a Options,
    stop: Duration,
}

impl Changing<'_> {
    fn ends(
        &self,
        verdict: Verdict,
        placebo: Option<Interval>,
        installed: Option<Installed>,
    ) -> Outcome {
        Outcome { verdict, stop: self.stop, placebo, installed }
    }

    /// Measures copies in the old order, if that is wanted, and then in the new one, which stay if
    /// they pay.
    fn prove(
        &mut self,
        hot: &Hot,
        new: &Order,
        progress: &Spec,
        tell: &mut dyn FnMut(&Step),
    ) -> Result<Outcome, Error> {
        let mut placebo = None;
        let rounds = self.options.placebo;
        if rounds > 0 {
            let exact = |gain: &Interval| gain.high - gain.low < EXACT;
            let (proof, _) = self.measure(hot.placebo(), progress, rounds, exact)?;
            tell(&Step::Placebo(proof));
            placebo = Some(proof.gain);
            remains::take_out(self.program, Which::Arrangements)?;
        }
        let sure = |gain: &Interval| gain.low > 0.0 || gain.high < 0.0;
        let most = LOOKS[LOOKS.len() - 1];
        let (proof, installed) = self.measure(hot.arrangement(new), progress, most, sure)?;
        tell(&Step::Measured(proof));
        if proof.gain.low > 0.0 {
            return Ok(self.ends(Verdict::Kept(proof.gain), placebo, Some(installed)));
        }
        remains::take_out(self.program, Which::Arrangements)?;
        Ok(self.ends(Verdict::Undone(proof.gain), placebo, None))
    }

    fn install(&mut self, arrangement: Arrangement) -> Result<Installed, Error> {
        let (mut plan, _) = Plan::arranged(arrangement);
        finder::add(self.program, &mut self.files, &mut plan);
        let installed = Installed::new(self.program, &plan, 0, None)?;
        self.stop = self.stop.max(installed.stood.longest);
        Ok(installed)
    }

    /// Puts copies in, and measures what they gain. They stay, unless this fails.
    fn measure(
        &mut self,
        arrangement: Arrangement,
        progress: &Spec,
        most: usize,
        enough: impl Fn(&Interval) -> bool,
    ) -> Result<(Proof, Installed), Error> {
        let installed = self.install(arrangement)?;
        let measured = self.measured(&installed, progress, most, enough);
        match measured {
            Ok(proof) => {
                self.stop = self.stop.max(proof.stop);
                Ok((proof, installed))
            }
            Err(error) => {
                remains::take_out(self.program, Which::Arrangements)?;
                Err(error)
            }
        }
    }

    fn measured(
        &self,
        installed: &Installed,
        progress: &Spec,
        most: usize,
        enough: impl Fn(&Interval) -> bool,
    ) -> Result<Proof, Error> {
        let progress = Progress::new(self.program, progress.clone())?;
        let proof = prove(self.program, installed, &progress, self.options.slot, most, enough);
        progress.end(self.program)?;
        Ok(proof?)
    }
}

/// Whether a thread has a shadow stack, as Linux 6.6 and later report.
pub fn has_shadow_stack(program: &Program) -> bool {
    let status = Status::of(program.face()).unwrap_or_default();
    let features = status.line("x86_Thread_features").unwrap_or_default();
    features.split_whitespace().any(|feature| feature == "shstk")
}

/// Returns the index of the file that is optimised.
fn chosen(program: &Program, files: &Files, options: &Options) -> Result<usize, Error> {
    let own = modules::own_path(program);
    let wanted = |file: &usize| {
        let mapped = files.mapped(*file);
        match &options.file {
            Some(part) => mapped.path.to_string_lossy().contains(part.as_str()),
            None => mapped.path.to_string_lossy() == own,
        }
    };
    let found = files.all().find(wanted);
    found.ok_or_else(|| Error::NoFile { wanted: options.file.clone().unwrap_or(own) })
}

/// Returns the function whose calls are the most even measure of what the program does. A slot in
/// which there are few has a part of a call more or less.
pub fn steady(called: &Called, slot: Duration) -> Option<FunctionId> {
    let unevenness = |(&id, rates): (&FunctionId, &Vec<f64>)| {
        let n = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / n;
        let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        let deviation = (squares / n).sqrt() / mean;
        let part = 0.5 / (mean * slot.as_nanos() as f64);
        let often = mean * 1e9 < OFTEN;
        (often && deviation.is_finite()).then_some((id, deviation.hypot(part)))
    };
    let all = called.rates.iter().filter_map(unevenness).filter(|(_, one)| *one < UNEVEN);
    all.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(id, _)| id)
}
